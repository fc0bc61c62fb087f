"""A packed folder (`manyheads pack`): arrays that are mapped from files, so that they need not fit into memory.

pack.json        what the arrays are, and what was left out; written last, so a folder that has it is whole
PART-images.npy  uint8, samples x height x width x channels; PART is train, test or public
PART-names.npy   a hash of the pixels of each image; beside them labels, fine, owners, kept, where they are known
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.data.listing import Found, Listing
from manyheads.data.pictures import Array
from manyheads.data.sources.paths import folder_of
from manyheads.errors import DataError
from manyheads.experiment import SourceConfig

FORMAT = 1
CARD = "pack.json"
KINDS = ("images", "names", "labels", "fine", "owners", "kept")


def packed(config: SourceConfig) -> Found:
    path = folder_of(config)
    card = read_card(path)
    parts = {name: _part(path, name, part) for name, part in card["parts"].items()}
    return Found(
        card["name"],
        f'data.path = "{path}"',
        parts["train"],
        parts.get("test"),
        parts.get("public"),
        class_names=tuple(card["classes"]),
        named=card["named"],
        client_names=tuple(card["clients"]),
        notes=tuple(card["notes"]),
    )


def read_card(path: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((path / CARD).read_text())
        if card["format"] != FORMAT:
            raise DataError(f"{path / CARD}: has format {card['format']}; this version of manyheads reads {FORMAT}")
        if not {"name", "classes", "named", "clients", "notes", "parts"} <= card.keys() or "train" not in card["parts"]:
            raise ValueError
    except FileNotFoundError:
        unfinished = "; packing it was not finished: the same command goes on" if any(path.glob("*.npy")) else ""
        raise DataError(f'data.path = "{path}": not a packed folder (it has no {CARD}){unfinished}') from None
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{path / CARD}: not the description of a packed folder; pack it again") from None
    return card


def _part(path: Path, part: str, described: dict[str, Any]) -> Listing:
    arrays = {kind: _mapped(path / f"{part}-{kind}.npy", described[kind]) for kind in KINDS if kind in described}
    return Listing(
        Array(arrays["images"], f"{path / part}-images.npy"),
        arrays.get("labels"),
        arrays.get("fine"),
        arrays.get("owners"),
        arrays.get("kept"),
        arrays["names"],
    )


def _mapped(file: Path, shape: list[int]) -> NDArray[Any]:
    try:
        # "c": a private view, never written back; torch warns about arrays that it must not write to.
        array: NDArray[Any] = np.load(file, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be mapped: {str(error).partition(chr(10))[0]}; pack it again") from None
    if list(array.shape) != shape:
        raise DataError(f"{file}: has shape {array.shape} instead of {tuple(shape)}; pack it again")
    return array

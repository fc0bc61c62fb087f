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

from manyheads.config.data import SourceConfig
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.pictures import Array
from manyheads.data.sources.paths import folder_of, where_of
from manyheads.errors import DataError

FORMAT = 1
CARD = "pack.json"
KINDS = {"images": "|u1", "names": "<u8", "labels": "<i8", "fine": "<i8", "owners": "<i8", "kept": "<i8"}


def packed(config: SourceConfig) -> SourceListing:
    path = folder_of(config)
    card = read_card(path)
    parts = {name: _part(path, name, part) for name, part in card["parts"].items()}
    return SourceListing(
        card["name"],
        where_of(config, path),
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
        lists = all(isinstance(card[key], list) for key in ("classes", "clients", "notes"))
        shapes = [[part["images"], part["names"], *part.values()] for part in card["parts"].values()]
        if not ({"name", "named"} <= card.keys() and lists and "train" in card["parts"]):
            raise ValueError
        if not all(isinstance(shape, list) for part in shapes for shape in part):
            raise ValueError
    except FileNotFoundError:
        unfinished = "; packing it was not finished: the same command goes on" if any(path.glob("*.npy")) else ""
        raise DataError(f'data.path = "{path}": not a packed folder (it has no {CARD}){unfinished}') from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path / CARD}: not the description of a packed folder; pack it again") from None
    return card


def _part(path: Path, part: str, described: dict[str, Any]) -> Listing:
    arrays = {kind: mapped(path, part, kind, described[kind]) for kind in KINDS if kind in described}
    return Listing(
        Array(arrays["images"], f"{path / part}-images.npy"),
        arrays.get("labels"),
        arrays.get("fine"),
        arrays.get("owners"),
        arrays.get("kept"),
        arrays["names"],
    )


def mapped(path: Path, part: str, kind: str, shape: list[int]) -> NDArray[Any]:
    """One array of a packed folder, found to be what the card says."""
    file = path / f"{part}-{kind}.npy"
    try:
        # Read-only: a map that could be written to may not be larger than the memory.
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be mapped: {str(error).partition(chr(10))[0]}; pack it again") from None
    if list(array.shape) != shape:
        raise DataError(f"{file}: has shape {array.shape} instead of {tuple(shape)}; pack it again")
    if array.dtype != KINDS[kind]:
        raise DataError(f"{file}: holds {array.dtype} instead of {np.dtype(KINDS[kind])}; pack it again")
    return array

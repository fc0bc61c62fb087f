"""The source of a packed folder (`manyheads pack`): arrays mapped from files, which need not fit into memory.

pack.json        what the arrays are, and what was left out; written last, so a folder that has it is whole
PART-images.npy  uint8, samples x height x width x channels; PART is train, test or public
PART-names.npy   a hash of the pixels of each image; beside them labels, fine, owners, kept, where they are known
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manyheads.config.data import SourceConfig
from manyheads.config.types import Positive
from manyheads.data.images import ImageArray
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.sources.paths import folder_of, where_of
from manyheads.errors import DataError, first_line
from manyheads.files import open_data, read_file

FORMAT = 1
CARD = "pack.json"
KINDS = {"images": "|u1", "names": "<u8", "labels": "<i8", "fine": "<i8", "owners": "<i8", "kept": "<i8"}
Length = Annotated[list[Positive], Field(min_length=1, max_length=1)]


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Format(_Described):
    format: int


class PackedPart(_Described):
    """The shapes of the arrays of one part."""

    images: Annotated[list[Positive], Field(min_length=4, max_length=4)]
    names: Length
    labels: Length | None = None
    fine: Length | None = None
    owners: Length | None = None
    kept: Length | None = None

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {kind: shape for kind in KINDS if (shape := getattr(self, kind)) is not None}


class PackCard(_Described):
    """The content of pack.json, with the images that could not be read."""

    name: str
    classes: list[str]
    named: bool
    clients: list[str]
    parts: dict[Literal["train", "test", "public"], PackedPart]
    notes: list[str]

    @property
    def images(self) -> int:
        """The number of images, with those that could not be read."""
        return sum(part.images[0] for part in self.parts.values())


def packed(config: SourceConfig) -> SourceListing:
    path = folder_of(config)
    card = read_card(path)
    parts = {name: _part(path, name, card) for name in card.parts}
    return SourceListing(
        card.name,
        where_of(config, path),
        parts["train"],
        parts.get("test"),
        parts.get("public"),
        class_names=tuple(card.classes),
        named=card.named,
        client_names=tuple(card.clients),
        notes=tuple(card.notes),
    )


def read_card(path: Path) -> PackCard:
    """Read pack.json and check it."""
    try:
        content = read_file(path / CARD, follow=True)
        written = _Format.model_validate_json(content).format
        if written != FORMAT:
            raise DataError(f"{path / CARD}: has format {written}; this version of manyheads reads {FORMAT}")
        card = PackCard.model_validate_json(content)
    except FileNotFoundError:
        unfinished = "; packing was not finished; the same command continues it" if any(path.glob("*.npy")) else ""
        raise DataError(f'data.path = "{path}": not a packed folder (it has no {CARD}){unfinished}') from None
    except (OSError, ValidationError):
        raise DataError(f"{path / CARD}: not the description of a packed folder; pack it again") from None
    _check_parts(path, card)
    return card


def _check_parts(path: Path, card: PackCard) -> None:
    """Check that every array of a part has an entry for each image, and that the parts fit together."""
    fits = "train" in card.parts
    for part in card.parts.values():
        lengths = {kind: shape[0] for kind, shape in part.shapes.items() if kind != "kept"}
        fits &= set(lengths.values()) == {part.images[0]} and (part.kept or [0])[0] <= part.images[0]
    private = [part.shapes.keys() for name, part in card.parts.items() if name != "public"]
    for kind in ("labels", "fine", "owners"):
        fits &= len({kind in shapes for shapes in private}) < 2
    if not fits or bool(card.clients) != any("owners" in shapes for shapes in private):
        raise DataError(f"{path / CARD}: not the description of a packed folder; pack it again")


def _part(path: Path, name: Literal["train", "test", "public"], card: PackCard) -> Listing:
    part = card.parts[name]
    arrays = {kind: mapped(path, name, kind, shape) for kind, shape in part.shapes.items()}
    limits = {"labels": len(card.classes), "fine": math.inf, "owners": len(card.clients), "kept": part.images[0]}
    for kind, limit in limits.items():
        _check_range(path / f"{name}-{kind}.npy", arrays.get(kind), limit)
    kept = arrays.get("kept")
    if kept is not None and (np.diff(kept) <= 0).any():
        raise DataError(f"{path / name}-kept.npy: names an image twice, or not in order; pack it again")
    return Listing(
        ImageArray(arrays["images"], f"{path / name}-images.npy"),
        arrays.get("labels"),
        arrays.get("fine"),
        arrays.get("owners"),
        kept,
        arrays["names"],
    )


def _check_range(file: Path, numbers: NDArray[Any] | None, limit: float) -> None:
    if numbers is not None and (numbers.min() < 0 or numbers.max() >= limit):
        most = f" to {limit - 1}" if limit < math.inf else " or more"
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise DataError(f"{file}: holds {wrong}; needed: 0{most}; pack it again")


def mapped(path: Path, part: str, kind: str, shape: list[int]) -> NDArray[Any]:
    """Map one array of a packed folder, and check that it is what the card says."""
    file = path / f"{part}-{kind}.npy"
    try:
        open_data(file).close()  # a map of a pipe would never be had
        # Read-only: a map that could be written to may not be larger than the memory.
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # whatever a damaged header makes a reader raise
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"{file}: cannot be mapped: {reason}; pack it again") from None
    if list(array.shape) != shape:
        raise DataError(f"{file}: has shape {array.shape} instead of {tuple(shape)}; pack it again")
    if array.dtype != KINDS[kind]:
        raise DataError(f"{file}: holds {array.dtype} instead of {np.dtype(KINDS[kind])}; pack it again")
    return array

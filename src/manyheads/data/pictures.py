"""Images before they are pixels of one shape: files, arrays, rows of a table; and how they are read.

Reading is the same whether the result stays in memory or is packed: decode, turn upright, grey or colour, resize.
"""

import contextlib
import functools
import hashlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from manyheads.data.arrays import Images, Indices
from manyheads.errors import DataError
from manyheads.files import open_data
from manyheads.printable import printable

# Pillow reads many more, by programs that few images need and that nobody has to trust: PostScript is one.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
NO_IMAGE = "is not an image, or one of an unknown kind"


class Unreadable(Exception):
    """One image that cannot be read; the text says why."""


def decoded(file: BinaryIO, size: tuple[int, int] | None = None) -> Image.Image:
    """An image of one of the FORMATS, whatever its file is called; `size` as for `Pictures.open`."""
    with Image.open(file, formats=_formats()) as image:
        if size is not None and image.format == "JPEG":
            image.draft(None, (max(size), max(size)))  # of either orientation
        _refuse_deep(image)
        ImageOps.exif_transpose(image, in_place=True)
        image.load()
        return image


@functools.cache
def _formats() -> tuple[str, ...]:
    """Those of the FORMATS that this Pillow knows."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def undecodable(error: Exception) -> Exception:
    """What to raise for whatever a damaged file makes a decoder raise. Too little memory is no fault of the image."""
    if isinstance(error, Unreadable | MemoryError):
        return error
    what = "read" if isinstance(error, OSError) and error.strerror else "decoded"
    reason = getattr(error, "strerror", None) or str(error)
    return Unreadable(f"cannot be {what}: {printable(reason.partition(chr(10))[0]) or type(error).__name__}")


class Pictures(ABC):
    """A row of images that can be opened one by one."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, number: int) -> str:
        """What a person calls it: a file, or a place in an array."""

    @abstractmethod
    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        """Decoded, perhaps smaller where the format can do that, but not below `size` (height, width)."""

    def pixels(self, number: int) -> NDArray[np.uint8] | None:
        """Height x width x channels, of one that is pixels already."""
        return None

    @abstractmethod
    def select(self, numbers: Indices) -> "Pictures":
        """Some of them, in their order."""

    @abstractmethod
    def state(self) -> str:
        """A text that changes when the images do."""


@dataclass(frozen=True, eq=False)
class Files(Pictures):
    """Image files, below one folder."""

    root: Path
    paths: NDArray[np.bytes_]  # relative to it; as bytes, because a million of them are

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, number: int) -> str:
        return printable(self._path(number))

    def _path(self, number: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.paths[number]))

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        try:
            with open_data(Path(self._path(number))) as file:
                return decoded(file, size)
        except FileNotFoundError:
            raise Unreadable("is gone") from None
        except UnidentifiedImageError:
            empty = os.path.getsize(self._path(number)) == 0
            raise Unreadable("is empty" if empty else NO_IMAGE) from None
        except Exception as error:
            raise undecodable(error) from None

    def select(self, numbers: Indices) -> "Files":
        return Files(self.root, self.paths[numbers])

    def state(self) -> str:
        def stamp(path: str) -> str:
            try:
                found = os.stat(path)
                return f"{path} {found.st_size} {found.st_mtime_ns}"
            except OSError:
                return path

        return "\n".join(stamp(self._path(number)) for number in range(len(self)))


def files(root: Path, paths: Sequence[str]) -> Files:
    """Files by their paths below a folder."""
    return Files(root, np.array([os.fsencode(path) for path in paths], dtype=np.bytes_))


@dataclass(frozen=True, eq=False)
class Array(Pictures):
    """Images that are pixels already."""

    images: Images
    where: str

    def __len__(self) -> int:
        return len(self.images)

    def name(self, number: int) -> str:
        return f"{self.where}[{number}]"

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        image = self.images[number]
        if image.shape[-1] > 4:
            raise DataError(f"has {image.shape[-1]} channels, which is neither grey nor colour; make it so yourself")
        return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)

    def pixels(self, number: int) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self.images[number]
        return pixels

    def select(self, numbers: Indices) -> "Array":
        return Array(self.images[numbers], self.where)

    def state(self) -> str:
        return hashlib.sha256(self.images.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Entries(Pictures):
    """Images that a library decodes, one by one."""

    rows: Any  # anything with a length and numbered entries
    image: Callable[[Any], Any]  # from an entry to a Pillow image
    where: str
    numbers: Indices

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, number: int) -> str:
        return f"{self.where}[{self.numbers[number]}]"

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        try:
            image = self.image(self.rows[int(self.numbers[number])])
            if not isinstance(image, Image.Image):
                raise Unreadable(f"is a {type(image).__name__}; needed: an image")
            _refuse_deep(image)
            return ImageOps.exif_transpose(image)
        except UnidentifiedImageError:
            raise Unreadable(NO_IMAGE) from None
        except Exception as error:
            raise undecodable(error) from None

    def select(self, numbers: Indices) -> "Entries":
        return Entries(self.rows, self.image, self.where, self.numbers[numbers])

    def state(self) -> str:
        return f"{self.where} {getattr(self.rows, '_fingerprint', '')} {self.numbers.tolist()}"


@dataclass(frozen=True, eq=False)
class Joined(Pictures):
    """Several rows of images, one after the other."""

    parts: tuple[Pictures, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def _find(self, number: int) -> tuple[Pictures, int]:
        for part in self.parts:
            if number < len(part):
                return part, number
            number -= len(part)
        raise IndexError(number)

    def name(self, number: int) -> str:
        part, inside = self._find(number)
        return part.name(inside)

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        part, inside = self._find(number)
        return part.open(inside, size)

    def pixels(self, number: int) -> NDArray[np.uint8] | None:
        part, inside = self._find(number)
        return part.pixels(inside)

    def select(self, numbers: Indices) -> "Joined":
        ends = np.cumsum([len(part) for part in self.parts])
        starts = ends - [len(part) for part in self.parts]
        owner = np.searchsorted(ends, numbers, side="right")
        chosen = [part.select(numbers[owner == at] - starts[at]) for at, part in enumerate(self.parts)]
        return Joined(tuple(part for part in chosen if len(part)))

    def state(self) -> str:
        return "\n".join(part.state() for part in self.parts)


@dataclass(frozen=True, eq=False)
class Some(Pictures):
    """Some of a row of images, which stays where it is: a copy of a memory map could fill the memory."""

    every: Pictures
    numbers: Indices

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, number: int) -> str:
        return self.every.name(int(self.numbers[number]))

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        return self.every.open(int(self.numbers[number]), size)

    def pixels(self, number: int) -> NDArray[np.uint8] | None:
        return self.every.pixels(int(self.numbers[number]))

    def select(self, numbers: Indices) -> "Some":
        return Some(self.every, self.numbers[numbers])

    def state(self) -> str:
        return self.every.select(self.numbers).state()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Pillow warns of what is odd about a file, such as its EXIF notes; its pixels are whole, or it would not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


DEEP = ("I", "F")  # 16 and 32 bits, in all their variants


def _refuse_deep(image: Image.Image) -> None:
    """Which of 65,536 values are black and white is for its owner to say."""
    raw = [str(tile[3]) for tile in getattr(image, "tile", ()) if len(tile) > 3]
    # BGR;16 is 16 bits a pixel: 5, 6 and 5.
    if image.mode.startswith(DEEP) or any(";16" in mode and "BGR;16" not in mode for mode in raw):
        raise Unreadable(f"has 16 or more bits a channel (mode {image.mode}); needed: 8, so scale it to 0 ... 255")

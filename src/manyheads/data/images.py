"""Images before they have one shape: files, arrays, rows of a table; and how they are read.

Reading is the same whether the result stays in memory or is packed: decode, turn upright, make grey or colour, resize.
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
from manyheads.errors import DataError, first_line
from manyheads.files import open_data
from manyheads.printable import printable

# Pillow reads many more, with decoders that few images need and that strangers could abuse: PostScript is one.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
NO_IMAGE = "is not an image of a known format"


class Unreadable(Exception):
    """One image that cannot be read; the text says why."""


def decoded(file: BinaryIO, size: tuple[int, int] | None = None) -> Image.Image:
    """Decode an image of one of the FORMATS, whatever its file is called; `size` as for `ImageSequence.open`."""
    with Image.open(file, formats=_formats()) as image:
        if size is not None and image.format == "JPEG":
            image.draft(None, (max(size), max(size)))  # of either orientation
        _refuse_deep(image)
        ImageOps.exif_transpose(image, in_place=True)
        image.load()
        return image


@functools.cache
def _formats() -> tuple[str, ...]:
    """Return those FORMATS that this Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def undecodable(error: Exception) -> Exception:
    """Return the error to raise for whatever a damaged file makes a decoder raise, unless memory ran out."""
    if isinstance(error, Unreadable | MemoryError):
        return error
    what = "read" if isinstance(error, OSError) and error.strerror else "decoded"
    reason = getattr(error, "strerror", None) or first_line(error)
    return Unreadable(f"cannot be {what}: {printable(reason)}")


class ImageSequence(ABC):
    """A sequence of images that are opened one by one."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, number: int) -> str:
        """Return the name of an image for messages: a file, or a place in an array."""

    @abstractmethod
    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        """Decode an image, to a smaller size if the format can do that, but not below `size` (height, width)."""

    def pixels(self, number: int) -> NDArray[np.uint8] | None:
        """Return an image that is an array already: height x width x channels."""
        return None

    @abstractmethod
    def select(self, numbers: Indices) -> "ImageSequence":
        """Return some of the images, in this order."""

    @abstractmethod
    def state(self) -> str:
        """Return a text that changes when the images do."""


@dataclass(frozen=True, eq=False)
class ImageFiles(ImageSequence):
    """Image files below one folder."""

    root: Path
    paths: NDArray[np.bytes_]  # relative to it; as bytes, which keeps a million of them small

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

    def select(self, numbers: Indices) -> "ImageFiles":
        return ImageFiles(self.root, self.paths[numbers])

    def state(self) -> str:
        def stamp(path: str) -> str:
            try:
                found = os.stat(path)
                return f"{path} {found.st_size} {found.st_mtime_ns}"
            except OSError:
                return path

        return "\n".join(stamp(self._path(number)) for number in range(len(self)))


def image_files(root: Path, paths: Sequence[str]) -> ImageFiles:
    """Return image files by their paths below a folder."""
    return ImageFiles(root, np.array([os.fsencode(path) for path in paths], dtype=np.bytes_))


@dataclass(frozen=True, eq=False)
class ImageArray(ImageSequence):
    """Images in an array."""

    array: Images
    where: str

    def __len__(self) -> int:
        return len(self.array)

    def name(self, number: int) -> str:
        return f"{self.where}[{number}]"

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        image = self.array[number]
        if image.shape[-1] > 4:
            raise DataError(f"has {image.shape[-1]} channels, which is neither grey nor colour; make it so yourself")
        return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)

    def pixels(self, number: int) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self.array[number]
        return pixels

    def select(self, numbers: Indices) -> "ImageArray":
        return ImageArray(self.array[numbers], self.where)

    def state(self) -> str:
        return hashlib.sha256(self.array.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class LibraryImages(ImageSequence):
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

    def select(self, numbers: Indices) -> "LibraryImages":
        return LibraryImages(self.rows, self.image, self.where, self.numbers[numbers])

    def state(self) -> str:
        return f"{self.where} {getattr(self.rows, '_fingerprint', '')} {self.numbers.tolist()}"


@dataclass(frozen=True, eq=False)
class JoinedImages(ImageSequence):
    """Several sequences of images, one after the other."""

    parts: tuple[ImageSequence, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def _find(self, number: int) -> tuple[ImageSequence, int]:
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

    def select(self, numbers: Indices) -> "JoinedImages":
        ends = np.cumsum([len(part) for part in self.parts])
        starts = ends - [len(part) for part in self.parts]
        owner = np.searchsorted(ends, numbers, side="right")
        chosen = [part.select(numbers[owner == at] - starts[at]) for at, part in enumerate(self.parts)]
        return JoinedImages(tuple(part for part in chosen if len(part)))

    def state(self) -> str:
        return "\n".join(part.state() for part in self.parts)


@dataclass(frozen=True, eq=False)
class ImageSubset(ImageSequence):
    """Some images of a sequence, which stays where it is: a copy of a mapped array could fill the memory."""

    every: ImageSequence
    numbers: Indices

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, number: int) -> str:
        return self.every.name(int(self.numbers[number]))

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        return self.every.open(int(self.numbers[number]), size)

    def pixels(self, number: int) -> NDArray[np.uint8] | None:
        return self.every.pixels(int(self.numbers[number]))

    def select(self, numbers: Indices) -> "ImageSubset":
        return ImageSubset(self.every, self.numbers[numbers])

    def state(self) -> str:
        return self.every.select(self.numbers).state()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence Pillow's warnings about odd files, such as their EXIF notes; damaged pixels are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


DEEP = ("I", "F")  # 16 and 32 bits, in all their variants


def _refuse_deep(image: Image.Image) -> None:
    """Refuse images of 16 bits or more: which of their values are black and white, only their owner knows."""
    raw = [str(tile[3]) for tile in getattr(image, "tile", ()) if len(tile) > 3]
    # BGR;16 is 16 bits a pixel: 5, 6 and 5.
    if image.mode.startswith(DEEP) or any(";16" in mode and "BGR;16" not in mode for mode in raw):
        raise Unreadable(f"has 16 or more bits a channel (mode {image.mode}); needed: 8, so scale it to 0 ... 255")

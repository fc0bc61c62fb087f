"""Images before they are pixels of one shape: files, arrays, rows of a table; and how they are read.

Reading is the same whether the result stays in memory or is packed: decode, turn upright, grey or colour, resize.
"""

import contextlib
import hashlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from manyheads.data.arrays import Images, Indices
from manyheads.errors import DataError

CHUNK = 64  # images read at a time: few enough to keep many workers busy to the end
GREY = ("1", "L", "LA", "La")
DEEP = ("I", "F")  # 16 and 32 bits, in all their variants


class Unreadable(Exception):
    """One image that cannot be read; the text says why."""


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
        return os.path.join(self.root, os.fsdecode(self.paths[number]))

    def open(self, number: int, size: tuple[int, int] | None) -> Image.Image:
        try:
            with Image.open(self.name(number)) as image:
                if size is not None and image.format == "JPEG":
                    image.draft(None, (max(size), max(size)))  # of either orientation
                _refuse_deep(image)
                ImageOps.exif_transpose(image, in_place=True)
                image.load()
                return image
        except Unreadable:
            raise
        except FileNotFoundError:
            raise Unreadable("is gone") from None
        except UnidentifiedImageError:
            empty = os.path.getsize(self.name(number)) == 0
            raise Unreadable("is empty" if empty else "is not an image, or one of an unknown kind") from None
        except Exception as error:  # whatever a damaged file makes a decoder raise
            raise Unreadable(f"cannot be decoded: {str(error).partition(chr(10))[0]}") from None

    def select(self, numbers: Indices) -> "Files":
        return Files(self.root, self.paths[numbers])

    def state(self) -> str:
        def stamp(path: str) -> str:
            try:
                found = os.stat(path)
                return f"{path} {found.st_size} {found.st_mtime_ns}"
            except OSError:
                return path

        return "\n".join(stamp(self.name(number)) for number in range(len(self)))


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
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(f"cannot be decoded: {str(error).partition(chr(10))[0]}") from None

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


@dataclass(frozen=True)
class Frame:
    """What every image is made into."""

    height: int
    width: int
    channels: int
    fit: Literal["stretch", "crop"] = "stretch"
    any_size: bool = True  # otherwise an image of another size is a mistake
    any_colour: bool = True  # otherwise a colour image among grey ones is

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels

    @property
    def text(self) -> str:
        return f"{self.height} x {self.width} x {self.channels}"

    def read(self, pictures: Pictures, number: int) -> tuple[NDArray[np.uint8], bool]:
        """The pixels of an image, and whether it had a palette."""
        pixels = pictures.pixels(number)
        if pixels is not None and pixels.shape == self.shape:
            return pixels, False
        image = pictures.open(number, (self.height, self.width) if self.any_size else None)
        palette = image.mode in ("P", "PA")
        image = self._coloured(image)
        if image.size != (self.width, self.height):
            image = self._resized(image)
        return np.asarray(image, dtype=np.uint8).reshape(self.shape), palette

    def _coloured(self, image: Image.Image) -> Image.Image:
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        if self.channels not in (1, 3):
            raise DataError(f"has not {self.channels} channels as the first image; give data.channels = 1 or 3")
        mode = "L" if self.channels == 1 else "RGB"
        if mode == "L" and image.mode not in GREY and not self.any_colour:
            raise DataError("is in colour, but the first image is grey; say which you want: data.channels = 1 or 3")
        try:
            return image if image.mode == mode else image.convert(mode)
        except ValueError:
            raise Unreadable(f"has mode {image.mode}, which cannot be turned into {mode}") from None

    def _resized(self, image: Image.Image) -> Image.Image:
        if not self.any_size:
            raise DataError(
                f"is {image.height} x {image.width}, the first image {self.height} x {self.width}; "
                "give a common data.size (pack: --size)"
            )
        if self.fit == "crop":
            return ImageOps.fit(image, (self.width, self.height), Image.Resampling.BILINEAR)
        return image.resize((self.width, self.height), Image.Resampling.BILINEAR)


@dataclass(frozen=True)
class Reading:
    """What there is to say about images that were read: which could not be, and which had a palette."""

    unreadable: tuple[tuple[int, str], ...] = ()  # number, why
    palette: tuple[int, ...] = ()


def read_into(pictures: Pictures, frame: Frame, out: Images) -> Reading:
    """Read all of them into an array of the frame's shape; an unreadable one leaves its place as it is."""
    unreadable, palette = [], []
    for number in range(len(pictures)):
        try:
            out[number], had_palette = frame.read(pictures, number)
        except Unreadable as error:
            unreadable.append((number, str(error)))
        except DataError as error:
            raise DataError(f"{pictures.name(number)}: {error}") from None
        else:
            if had_palette:
                palette.append(number)
    return Reading(tuple(unreadable), tuple(palette))


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Pillow warns of what is odd about a file, such as its EXIF notes; its pixels are whole, or it would not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def chunks(count: int) -> Iterable[range]:
    return (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def read_all(pictures: Pictures, frame: Frame) -> tuple[Images, list[str]]:
    """All of them in memory, with the names of those that had a palette; one that is unreadable is an error."""
    if isinstance(pictures, Array) and pictures.images.shape[1:] == frame.shape:
        return pictures.images, []
    with quietly():
        return _read_all(pictures, frame)


def _read_all(pictures: Pictures, frame: Frame) -> tuple[Images, list[str]]:
    out = np.empty((len(pictures), *frame.shape), dtype=np.uint8)
    palette: list[str] = []
    pool = ThreadPoolExecutor(os.cpu_count())  # decoders let go of the interpreter's lock
    try:
        parts = {
            part.start: pool.submit(read_into, pictures.select(np.array(part)), frame, out[part.start : part.stop])
            for part in chunks(len(pictures))
        }
        for start, future in parts.items():
            reading = future.result()
            if reading.unreadable:
                number, why = reading.unreadable[0]
                raise DataError(
                    f"{pictures.name(start + number)}: {why}; repair or remove it, or pack the data first: "
                    "`manyheads pack` leaves such images out and lists them"
                )
            palette += [pictures.name(start + number) for number in reading.palette]
    finally:
        pool.shutdown(cancel_futures=True)
    return out, palette


def palette_note(names: Sequence[str]) -> tuple[str, ...]:
    """What to say of images whose pixels were numbers of colours."""
    return (f"{len(names)} palette image(s) turned into plain ones, the first {names[0]}",) if names else ()


def shape_of(pictures: Pictures) -> tuple[int, int, int]:
    """Height, width and channels of the first image that can be read."""
    first = pictures.pixels(0) if len(pictures) else None
    if first is not None:
        height, width, channels = first.shape
        return height, width, channels
    why = "there are no images"
    for number in range(len(pictures)):
        try:
            with quietly():
                image = pictures.open(number, None)
            return image.height, image.width, 1 if image.mode in GREY else 3
        except Unreadable as error:
            why = why if number else f"{pictures.name(0)}: {error}"
    raise DataError(f"no image can be read: {why}")


def _refuse_deep(image: Image.Image) -> None:
    """Which of 65,536 values are black and white is for its owner to say."""
    raw = [str(tile[3]) for tile in getattr(image, "tile", ()) if len(tile) > 3]
    # BGR;16 is 16 bits a pixel: 5, 6 and 5.
    if image.mode.startswith(DEEP) or any(";16" in mode and "BGR;16" not in mode for mode in raw):
        raise Unreadable(f"has 16 or more bits a channel (mode {image.mode}); needed: 8, so scale it to 0 ... 255")

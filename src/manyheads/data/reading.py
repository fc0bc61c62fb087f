"""Reading images into arrays."""

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from manyheads.data.arrays import Images
from manyheads.data.frame import Frame
from manyheads.data.images import ImageArray, ImageSequence, Unreadable, quietly
from manyheads.errors import DataError
from manyheads.memory import check_memory

CHUNK = 64  # images read at a time: few enough to keep many workers busy to the end


@dataclass(frozen=True)
class ReadReport:
    """A report on images that were read: which could not be, and which had a palette."""

    unreadable: tuple[tuple[int, str], ...] = ()  # number, why
    palette: tuple[int, ...] = ()


def read_into(images: ImageSequence, frame: Frame, out: Images) -> ReadReport:
    """Read images into an array of the frame's shape; an unreadable one leaves its place as it is."""
    unreadable, palette = [], []
    for number in range(len(images)):
        try:
            out[number], had_palette = frame.read(images, number)
        except Unreadable as error:
            unreadable.append((number, str(error)))
        except DataError as error:
            raise DataError(f"{images.name(number)}: {error}") from None
        else:
            if had_palette:
                palette.append(number)
    return ReadReport(tuple(unreadable), tuple(palette))


def chunks(count: int) -> Iterable[range]:
    return (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def read_all(images: ImageSequence, frame: Frame) -> tuple[Images, list[str]]:
    """Return all images in memory, and the names of those with a palette; an unreadable one is an error."""
    if isinstance(images, ImageArray) and images.array.shape[1:] == frame.shape:
        return images.array, []
    with quietly():
        return _read_all(images, frame)


def _read_all(images: ImageSequence, frame: Frame) -> tuple[Images, list[str]]:
    check_memory(len(images) * math.prod(frame.shape), f"{len(images):,} images of {frame.text}")
    out = np.empty((len(images), *frame.shape), dtype=np.uint8)
    palette: list[str] = []
    pool = ThreadPoolExecutor(os.cpu_count())  # decoders release the interpreter's lock
    try:
        parts = {
            part.start: pool.submit(read_into, images.select(np.array(part)), frame, out[part.start : part.stop])
            for part in chunks(len(images))
        }
        for start, future in parts.items():
            reading = future.result()
            if reading.unreadable:
                number, why = reading.unreadable[0]
                raise DataError(
                    f"{images.name(start + number)}: {why}; repair or remove it, or pack the data first: "
                    "`manyheads pack` leaves such images out and lists them"
                )
            palette += [images.name(start + number) for number in reading.palette]
    finally:
        pool.shutdown(cancel_futures=True)
    return out, palette


def palette_note(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note about images whose pixels were numbers of colours."""
    return (f"{len(names)} palette image(s) turned into plain ones, the first {names[0]}",) if names else ()

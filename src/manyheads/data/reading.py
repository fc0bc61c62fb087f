"""Reading pictures into arrays."""

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from manyheads.data.arrays import Images
from manyheads.data.frame import Frame
from manyheads.data.pictures import Array, Pictures, Unreadable, quietly
from manyheads.errors import DataError
from manyheads.memory import check_memory

CHUNK = 64  # images read at a time: few enough to keep many workers busy to the end


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


def chunks(count: int) -> Iterable[range]:
    return (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def read_all(pictures: Pictures, frame: Frame) -> tuple[Images, list[str]]:
    """All of them in memory, with the names of those that had a palette; one that is unreadable is an error."""
    if isinstance(pictures, Array) and pictures.images.shape[1:] == frame.shape:
        return pictures.images, []
    with quietly():
        return _read_all(pictures, frame)


def _read_all(pictures: Pictures, frame: Frame) -> tuple[Images, list[str]]:
    check_memory(len(pictures) * math.prod(frame.shape), f"{len(pictures):,} images of {frame.text}")
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

"""The files that images are packed into, filled chunk by chunk."""

import hashlib
import io
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.data.arrays import content_hashes
from manyheads.data.frame import Frame
from manyheads.data.images import ImageSequence
from manyheads.data.reading import CHUNK, ReadReport, read_into
from manyheads.errors import ConfigurationError, DataError
from manyheads.files import path_in_errors
from manyheads.memory import check_memory, gigabytes

MOST_WORKERS = 1_024


@dataclass(frozen=True, eq=False)
class PackJob:
    """The job of packing, as every worker knows it: from which images, into which folder."""

    out: Path
    frame: Frame
    images: dict[str, ImageSequence]

    def file(self, part: str, kind: str) -> Path:
        return self.out / f"{part}-{kind}.npy"

    def check_room(self, workers: int) -> None:
        """Refuse what does not fit into memory or onto the disk, before anything is written."""
        if workers > MOST_WORKERS:
            raise ConfigurationError(f"--workers {workers}: at most {MOST_WORKERS}")
        held = min(workers, sum(-(-len(images) // CHUNK) for images in self.images.values()))
        check_memory(held * CHUNK * math.prod(self.frame.shape), f"{held} x {CHUNK} images of {self.frame.text}")
        there = next(folder for folder in (self.out, *self.out.absolute().parents) if folder.exists())
        filled = sum(file.lstat().st_blocks * 512 for file in self.out.glob("*-images.npy"))
        total = sum(map(len, self.images.values())) * math.prod(self.frame.shape)
        if total > (free := shutil.disk_usage(there).free + filled):
            raise DataError(
                f"{self.out}: the images would take {gigabytes(total)}, and the disk has {gigabytes(free)} for them; "
                "lower --size, or give another folder"
            )

    def make_room(self) -> set[str]:
        """Create files of their full size (holes, until they are filled); return the parts that are new."""
        new = set()
        for part, images in self.images.items():
            for kind, shape, dtype in self._arrays(part, len(images)):
                header = _header(shape, dtype)
                size = len(header) + int(np.prod(shape)) * np.dtype(dtype).itemsize
                file = self.file(part, kind)
                if file.is_symlink() or (file.exists() and not file.is_file()):
                    raise DataError(f"{file}: exists and is not a plain file; remove it or give another folder")
                if not file.exists() or file.stat().st_size != size:
                    with path_in_errors(file), file.open("wb") as stream:
                        stream.write(header)
                        stream.truncate(size)
                    new.add(part)
        return new

    def _arrays(self, part: str, count: int) -> list[tuple[str, tuple[int, ...], str]]:
        return [("images", (count, *self.frame.shape), "|u1"), ("names", (count,), "<u8")]

    def fill(self, part: str, chunk: range) -> ReadReport:
        """Read a chunk and write it at its place in the files."""
        images = self.images[part].select(np.array(chunk))
        pixels = np.zeros((len(chunk), *self.frame.shape), dtype=np.uint8)
        reading = read_into(images, self.frame, pixels)
        arrays: dict[str, NDArray[Any]] = {"images": pixels, "names": content_hashes(pixels)}
        for kind, shape, dtype in self._arrays(part, len(self.images[part])):
            array = arrays[kind]
            file = self.file(part, kind)
            with path_in_errors(file), file.open("r+b") as stream:
                stream.seek(len(_header(shape, dtype)) + chunk.start * array[0].nbytes)
                stream.write(array.data)
        return reading

    def state(self, part: str, chunk: range) -> str:
        """Return a hash of a chunk that changes when one of its images does."""
        return hashlib.sha256(
            self.images[part].select(np.array(chunk)).state().encode(errors="surrogateescape")
        ).hexdigest()

    def sync(self) -> None:
        for part in self.images:
            for kind in ("images", "names"):
                file = self.file(part, kind)
                with path_in_errors(file), file.open("rb") as stream:
                    os.fsync(stream.fileno())


def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()

"""The journal of packing: which chunks are done, so that packing that was stopped can continue."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from manyheads.config.types import Count, Section
from manyheads.data.pack_job import PackJob
from manyheads.data.reading import ReadReport
from manyheads.errors import DataError
from manyheads.files import open_file, path_in_errors

JOURNAL = "journal.jsonl"
JOURNAL_SECONDS = 5.0  # between two syncs to the disk; a chunk counts as done after one


class _FirstLine(Section):
    """The first line: a fingerprint of what is packed."""

    packing: str


class _Chunk(Section):
    """Any other line: a finished chunk."""

    part: str
    start: Count
    state: str
    unreadable: list[tuple[Count, str]]
    palette: list[Count]

    def within(self, size: int) -> bool:
        """Tell whether it names only images of a chunk of this size."""
        return all(number < size for number in (*self.palette, *(number for number, _ in self.unreadable)))


class Journal:
    """The finished chunks, the state of their files then, and the images in them that could not be read."""

    def __init__(self, stream: BinaryIO, found: Iterable[_Chunk]) -> None:
        self._stream = stream
        self._found = {(line.part, line.start): line for line in found}  # of an earlier call
        self._done: dict[tuple[str, int], _Chunk] = {}
        self._pending: list[_Chunk] = []
        self._synced = time.monotonic()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, out: Path, fingerprint: str) -> Iterator["Journal"]:
        path = out / JOURNAL
        if not path.exists() and any(out.iterdir()):
            raise DataError(f"{out}: exists already and holds other files; give another folder")
        with os.fdopen(_descriptor(path), "a+b") as stream:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # flock's would live on in workers
            except OSError:
                raise DataError(f"{out}: another process is packing into it; wait for it or stop it") from None
            if not _is_there(path, stream):
                raise DataError(f"{out}: another process has just packed into it")
            stream.seek(0)
            text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]  # without half a line of a killed process
            try:
                lines = whole.splitlines()
                begun = [_FirstLine.model_validate_json(line) for line in lines[:1]]
                found = [_Chunk.model_validate_json(line) for line in lines[1:]]
            except ValidationError:
                raise _damaged(out) from None
            if begun and begun[0].packing != fingerprint:
                raise DataError(f"{out}: holds an unfinished packing of other data; remove it or give another folder")
            if not begun and any(other != path for other in out.iterdir()):
                raise DataError(f"{out}: exists already and holds other files; give another folder")
            stream.truncate(len(whole))
            if not begun:
                stream.write(_FirstLine(packing=fingerprint).model_dump_json().encode() + b"\n")
                stream.flush()
            yield cls(stream, found)
            path.unlink()  # still locked, so that nobody takes it for a stopped packing

    def knows(self, job: PackJob, part: str, chunk: range) -> bool:
        """Tell whether an earlier call has finished a chunk and none of its images has changed since."""
        line = self._found.get((part, chunk.start))
        if line is None or line.state != job.state(part, chunk):
            return False
        if not line.within(len(chunk)):
            raise _damaged(job.out)
        self._done[part, chunk.start] = line
        return True

    def forget(self, part: str) -> None:
        """Forget a part: its pixels are gone."""
        self._found = {key: line for key, line in self._found.items() if key[0] != part}

    def add(self, job: PackJob, part: str, chunk: range, reading: ReadReport, state: str) -> None:
        line = _Chunk(
            part=part,
            start=chunk.start,
            state=state,
            unreadable=list(reading.unreadable),
            palette=list(reading.palette),
        )
        self._done[part, chunk.start] = line
        self._pending.append(line)
        if time.monotonic() - self._synced >= JOURNAL_SECONDS:
            self.flush(job)

    def flush(self, job: PackJob) -> None:
        """Write pixels to the disk first, then the lines that say so."""
        job.sync()
        with path_in_errors(job.out / JOURNAL):
            for line in self._pending:
                self._stream.write(line.model_dump_json().encode() + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self._pending, self._synced = [], time.monotonic()

    def unreadable(self) -> int:
        return sum(len(line.unreadable) for line in self._done.values())

    def problems(self, part: str) -> tuple[list[tuple[int, str]], list[int]]:
        """Return the images of a part that could not be read, with the reason, and those that had a palette."""
        lines = sorted((line for (of, _), line in self._done.items() if of == part), key=lambda line: line.start)
        unreadable = [(line.start + number, why) for line in lines for number, why in line.unreadable]
        return unreadable, [line.start + number for line in lines for number in line.palette]


def _is_there(path: Path, stream: BinaryIO) -> bool:
    """Tell whether the file still has its name: a process that held it before may have finished."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    return False


def _descriptor(path: Path) -> int:
    try:
        return open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; remove it or give another folder") from None


def _damaged(out: Path) -> DataError:
    return DataError(f"{out}: its {JOURNAL} is damaged; remove it or give another folder")

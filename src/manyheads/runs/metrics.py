"""The file metrics.jsonl: one process at a time appends lines, each with one system call."""

import contextlib
import fcntl
import hashlib
import os
import weakref
from functools import partial
from pathlib import Path

from manyheads.errors import START_AGAIN, RunError
from manyheads.files import open_file, path_in_errors, refuse_link, write_all

CHUNK = 1 << 20


class MetricsFile:
    """The file metrics.jsonl, locked while it is open: whoever holds the lock owns the run folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        refuse_link(path)
        self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._digest, self.size = hashlib.sha256(), 0
        try:
            self._folder = os.lstat(path.parent)
            self._hold()
        except (RunError, OSError):
            self.close()
            raise
        os.register_at_fork(after_in_child=partial(_close_in_fork, weakref.ref(self)))

    def _hold(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            folder = self._path.parent
            raise RunError(f"{folder}: another process is running this experiment; wait for it or stop it") from None
        if os.fstat(self._descriptor).st_nlink > 1:
            raise RunError(f"{self._path}: has another name elsewhere (a hard link); put a copy of it in its place")

    def check_place(self) -> None:
        """Raise if the folder, or this file in it, is another one by now: the lock holds a file, whatever its name."""
        folder, same = self._path.parent, False
        with contextlib.suppress(OSError):
            same = os.path.samestat(os.lstat(folder), self._folder)
            same = same and os.path.samestat(os.lstat(self._path), os.fstat(self._descriptor))
        if not same:
            raise RunError(
                f"{folder}: was moved, removed or replaced while this run went on, so the run ends and nothing there "
                "was touched; give each run a folder of its own"
            )

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def append(self, line: bytes) -> None:
        with path_in_errors(self._path):
            write_all(self._descriptor, line)
        self._digest.update(line)
        self.size += len(line)

    def sync(self) -> str:
        """Flush the file to the disk and return its checksum."""
        with path_in_errors(self._path):
            os.fsync(self._descriptor)
        return self._digest.hexdigest()

    def check(self, size: int, checksum: str) -> None:
        """Raise unless the file begins as it did at a save."""
        if os.fstat(self._descriptor).st_size < size or self._read(size).hexdigest() != checksum:
            raise RunError(f"{self._path}: does not match the checkpoint; {START_AGAIN}")

    def cut(self, size: int) -> None:
        """Remove everything after the first `size` bytes."""
        with path_in_errors(self._path):
            os.ftruncate(self._descriptor, size)
        self._digest, self.size = self._read(size), size

    def _read(self, size: int) -> "hashlib._Hash":
        found = hashlib.sha256()
        for start in range(0, size, CHUNK):
            found.update(os.pread(self._descriptor, min(CHUNK, size - start), start))
        return found


def _close_in_fork(metrics: "weakref.ref[MetricsFile]") -> None:
    """Close a worker's copy: a worker that outlives its run for a moment must not keep others out."""
    held = metrics()
    if held is not None:
        held.close()

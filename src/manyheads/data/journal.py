"""What has been packed so far, in a file: packing that was stopped goes on."""

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manyheads.data.packing import PackJob
from manyheads.data.reading import Reading
from manyheads.errors import DataError

JOURNAL = "journal.jsonl"
JOURNAL_SECONDS = 5.0  # between two syncs to the disk; a chunk counts as done after one


class Journal:
    """Which chunks are done, in which state of their files, and what was wrong with images in them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._done: dict[tuple[str, int], dict[str, Any]] = {}
        self._pending: list[dict[str, Any]] = []
        self._synced = time.monotonic()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, out: Path, fingerprint: str) -> Iterator["Journal"]:
        path = out / JOURNAL
        if not path.exists() and any(out.iterdir()):
            raise DataError(f"{out}: exists already and holds other files; give another folder")
        with path.open("a+b") as stream:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # flock's would live on in workers
            except OSError:
                raise DataError(f"{out}: another process is packing into it; wait for it or stop it") from None
            stream.seek(0)
            text = stream.read()
            try:
                lines = [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
            except ValueError:
                raise DataError(f"{out}: its {JOURNAL} is damaged; remove it or give another folder") from None
            stream.truncate(text.rfind(b"\n") + 1)  # half a line of a process that was killed
            if lines and lines[0]["packing"] != fingerprint:
                raise DataError(f"{out}: holds half of another packing; remove it or give another folder")
            if not lines:
                stream.write(json.dumps({"packing": fingerprint}).encode() + b"\n")
                stream.flush()
            journal = cls(stream)
            for line in lines[1:]:
                journal._done[line["part"], line["start"]] = line
            yield journal

    def knows(self, job: PackJob, part: str, chunk: range) -> bool:
        line = self._done.get((part, chunk.start))
        if line is not None and line["state"] != job.state(part, chunk):
            del self._done[part, chunk.start]  # an image has changed since
            return False
        return line is not None

    def forget(self, part: str) -> None:
        """Its pixels are not there any more."""
        self._done = {key: line for key, line in self._done.items() if key[0] != part}

    def add(self, job: PackJob, part: str, chunk: range, reading: Reading, state: str) -> None:
        line = {"part": part, "start": chunk.start, "state": state, **dataclasses.asdict(reading)}
        self._done[part, chunk.start] = line
        self._pending.append(line)
        if time.monotonic() - self._synced >= JOURNAL_SECONDS:
            self.flush(job)

    def flush(self, job: PackJob) -> None:
        """Pixels first, then the lines that vouch for them."""
        job.sync()
        for line in self._pending:
            self._stream.write(json.dumps(line).encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._pending, self._synced = [], time.monotonic()

    def unreadable(self) -> int:
        return sum(len(line["unreadable"]) for line in self._done.values())

    def seen(self, part: str) -> tuple[list[tuple[int, str]], list[int]]:
        """Of a part: the images that could not be read, with why; and those that had a palette."""
        lines = sorted((line for (of, _), line in self._done.items() if of == part), key=lambda line: line["start"])
        unreadable = [(line["start"] + number, why) for line in lines for number, why in line["unreadable"]]
        return unreadable, [line["start"] + number for line in lines for number in line["palette"]]

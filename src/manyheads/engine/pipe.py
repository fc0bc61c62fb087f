"""The messages through the pipe between a run and a worker process."""

import struct
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from manyheads.engine.pickling import packed, unpacked

PROGRESS_SECONDS = 0.1  # between two messages about client-steps


@dataclass(frozen=True)
class StepsTaken:
    """A message that this many more client-steps were taken."""

    client_steps: int


@dataclass(frozen=True)
class Reply:
    """An answer, and the client-steps that were not reported yet."""

    value: Any
    client_steps: int


def send(connection: Connection, message: Any) -> None:
    """Send a message, and after it the contents of its large arrays as they lie in memory."""
    body, buffers = packed(message)
    contents = [buffer.raw() for buffer in buffers]
    connection.send_bytes(
        struct.pack(f"<{1 + len(contents)}Q", len(contents), *(raw.nbytes for raw in contents)) + body
    )
    for raw in contents:
        connection.send_bytes(raw)


def receive(connection: Connection) -> Any:
    header = connection.recv_bytes()
    (count,) = struct.unpack_from("<Q", header)
    buffers = [bytearray(size) for size in struct.unpack_from(f"<{count}Q", header, 8)]
    for buffer in buffers:
        connection.recv_bytes_into(buffer)
    return unpacked(header[8 * (1 + count) :], buffers)


class ProgressReporter:
    """A callback that reports client-steps to the parent now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._reported, self.unreported = connection, time.perf_counter(), 0

    def __call__(self, client_steps: int) -> None:
        self.unreported += client_steps
        now = time.perf_counter()
        if now - self._reported >= PROGRESS_SECONDS:
            send(self._connection, StepsTaken(self.unreported))
            self._reported, self.unreported = now, 0

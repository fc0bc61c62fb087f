"""The actor: what runs in a process of Ray."""

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from manyheads.engine.failure import attempted
from manyheads.engine.pickling import packed, unpacked
from manyheads.engine.plain import PlainTrainer
from manyheads.engine.precision import computing_in
from manyheads.engine.ray.cluster import import_ray, reason_of
from manyheads.engine.remote import ClientPayload, RemoteWorker
from manyheads.errors import SnapshotError, WorkerLost
from manyheads.exchange.transport import Answer
from manyheads.memory import enough_memory
from manyheads.setup.device import device_named


class Actor:
    """A Ray actor: a worker, and a count of its steps that can be read while it trains."""

    def __init__(self) -> None:
        self._taken = 0

    def make_clients(self, path: Sequence[str], shared: Sequence[Any], precision: str, payload: ClientPayload) -> Any:
        """Make the clients, and return on which machine. Code is looked for where the driver looks for it."""
        ray = import_ray()
        search_as(path)
        # Arrays in the object store must not be written to, and nobody does.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        torch.set_num_threads(1)

        def make() -> str:
            self._how = precision, device_named(payload.device)
            with enough_memory():
                self._worker = RayWorker(payload.unpacked(unpacked(*ray.get(shared[0]))), PlainTrainer())
            return str(ray.get_runtime_context().get_node_id())

        return attempted(make)

    def call(self, method: str, arguments: tuple[Any, ...], watched: bool) -> tuple[Any, int]:
        """Return the answer of the worker, and the number of steps that were taken for it."""
        further = (self._count,) if watched else ()
        answer = attempted(partial(self._do, method, *arguments, *further))
        taken, self._taken = self._taken, 0  # so that 0 is read until the next window begins
        return answer, taken

    def _do(self, method: str, *arguments: Any) -> Any:
        with enough_memory(), computing_in(*self._how), self._worker.at_work:
            return getattr(self._worker, method)(*arguments)

    def call_while_busy(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return the answer of the worker, which may be busy with something else."""
        return attempted(partial(getattr(self._worker, method), *arguments))

    def taken(self) -> int:
        return self._taken

    def _count(self, client_steps: int) -> None:
        self._taken += client_steps


class RayWorker(RemoteWorker):
    """A worker whose answers lie in Ray's object store, once on each machine."""

    def send(self, answer: Answer | SnapshotError) -> Any:
        ray = import_ray()
        return ray.put(as_stored(super().send(answer)))

    def receive(self, sent: Any) -> Answer | SnapshotError:
        ray = import_ray()
        try:
            body, arrays = ray.get(sent)
        except ray.exceptions.RayError as error:
            raise WorkerLost(f"a snapshot was lost: {reason_of(error)}") from None
        return super().receive(unpacked(body, arrays))


def search_as(path: Sequence[str]) -> None:
    """Look for modules in these places first. Ray puts the working folder before everything; the driver does not."""
    sys.path[:] = dict.fromkeys([*path, *sys.path])


def as_stored(value: Any) -> tuple[bytes, list[Any]]:
    """Return a value in the form that Ray stores, so that its arrays can be used where they lie."""
    body, buffers = packed(value)
    return body, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]

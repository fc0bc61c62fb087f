"""What runs in an actor's process."""

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
    """What runs in an actor's process: a worker, and a count of its steps that can be read while it trains."""

    def __init__(self) -> None:
        self._taken = 0

    def settle(self, path: Sequence[str], shared: Sequence[Any], precision: str, payloads: ClientPayload) -> Any:
        """Make its clients, and say on which machine. Code that an experiment names is found where the driver does."""
        ray = import_ray()
        search_as(path)
        # What lies in the object store must not be written to, which nobody does.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        torch.set_num_threads(1)

        def make() -> str:
            self._how = precision, device_named(payloads.device)
            with enough_memory():
                self._worker = RayWorker(payloads.unpacked(unpacked(*ray.get(shared[0]))), PlainTrainer())
            return str(ray.get_runtime_context().get_node_id())

        return attempted(make)

    def call(self, method: str, arguments: tuple[Any, ...], watched: bool) -> tuple[Any, int]:
        """The answer of the worker, and how many steps were taken for it."""
        further = (self._count,) if watched else ()
        answer = attempted(partial(self._do, method, *arguments, *further))
        taken, self._taken = self._taken, 0  # so that what is read before the next window begins is none
        return answer, taken

    def _do(self, method: str, *arguments: Any) -> Any:
        with enough_memory(), computing_in(*self._how), self._worker.at_work:
            return getattr(self._worker, method)(*arguments)

    def beside(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """The answer of the worker, which may be busy with something else."""
        return attempted(partial(getattr(self._worker, method), *arguments))

    def taken(self) -> int:
        return self._taken

    def _count(self, client_steps: int) -> None:
        self._taken += client_steps


class RayWorker(RemoteWorker):
    """What it shows lies in the object store, once on each machine."""

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
    """Look for modules in this order first. Ray puts the working folder before everything; the driver does not."""
    sys.path[:] = dict.fromkeys([*path, *sys.path])


def as_stored(value: Any) -> tuple[bytes, list[Any]]:
    """As Ray stores it so that its arrays can be used where they lie."""
    body, buffers = packed(value)
    return body, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]

"""The plain engine: one client after another, one step after another. The reference for all others."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from manyheads.algorithms.base import Algorithm
from manyheads.client.client import Client, learning_rate
from manyheads.engine.base import Engine, Progress, Window, WindowLosses
from manyheads.engine.precision import computing_in
from manyheads.engine.worker import Trainer, Worker
from manyheads.memory import enough_memory
from manyheads.setup.build import Ensemble


class PlainTrainer:
    """A trainer that trains one client after another in plain PyTorch."""

    encodes = True

    def __init__(self) -> None:
        self.notes: list[str] = []

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        terms: tuple[str, ...] = ()
        recorded, steps = [], range(window.start, window.stop)
        rates = [learning_rate(clients[0].training, step) for step in steps]
        before = sum(client.data_seconds for client in clients)
        for client in clients:
            begun = time.perf_counter()
            plan = algorithm.plan(client, window.start, window.stop)
            batches = client.batches(window.start, window.stop, plan)
            client.data_seconds += time.perf_counter() - begun
            values = []
            for step, rate in zip(steps, rates, strict=True):
                terms, losses = client.step(algorithm.losses, batches.at(step), step, rate)
                values.append(losses)
                progress(1)
            recorded.append(torch.stack(values))
        finite = tuple(bool(torch.isfinite(client.state.values).all()) for client in clients)
        data = sum(client.data_seconds for client in clients) - before
        return WindowLosses(terms, torch.stack(recorded).cpu(), finite, data)


class LocalEngine(Engine):
    """An engine with all clients in one worker in this process; its trainer decides how a window is run."""

    def __init__(self, ensemble: Ensemble, trainer: Trainer, precision: str = "float32") -> None:
        self._precision, self._device = precision, ensemble.clients[0].state.values.device
        super().__init__([range(len(ensemble.resolved.groups))], ensemble.resolved.groups, str(self._device))
        self._worker, self._trainer = Worker(ensemble, trainer), trainer

    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        further = () if progress is None else (progress,)
        with enough_memory(), computing_in(self._precision, self._device):
            return [getattr(self._worker, method)(*given, *further) for given in arguments.values()]

    def notes(self) -> list[str]:
        said, self._trainer.notes = self._trainer.notes, []
        return [*said, *super().notes()]

    def ask_while_busy(self, method: str, *arguments: Any) -> list[Any]:
        with computing_in(self._precision, self._device):
            return [getattr(self._worker, method)(*arguments)]

    def close(self) -> None:
        pass  # nothing outlives this process

    def fetch_clients(self) -> None:
        pass  # they are here


def exchange(ensemble: Ensemble, step: int) -> None:
    """Let clients that all live in this process exchange what is due before `step`."""
    LocalEngine(ensemble, PlainTrainer()).exchange(step)

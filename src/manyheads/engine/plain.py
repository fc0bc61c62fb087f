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
    """One client after another in plain PyTorch."""

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
    """All clients as one worker in this process; how a window is run is the trainer's business."""

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

    def ask_beside(self, method: str, *arguments: Any) -> list[Any]:
        with computing_in(self._precision, self._device):
            return [getattr(self._worker, method)(*arguments)]

    def close(self) -> None:
        pass  # what is here goes with this process

    def bring_home(self) -> None:
        pass  # where they are


def exchange(ensemble: Ensemble, step: int) -> None:
    """What clients that all live here exchange before `step`, if anything is due."""
    LocalEngine(ensemble, PlainTrainer()).exchange(step)

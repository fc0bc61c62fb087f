"""The plain engine: one client after another, one step after another. The reference for all others."""

from collections.abc import Sequence

import torch

from manyheads.algorithms.base import Algorithm
from manyheads.client import Client, learning_rate
from manyheads.engine.base import Progress, Window, WindowLosses


class Plain:
    """One client after another in plain PyTorch."""

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        terms: tuple[str, ...] = ()
        recorded, steps = [], range(window.start, window.stop)
        rates = [learning_rate(clients[0].training, step) for step in steps]
        for client in clients:
            plan = algorithm.plan(client, window.start, window.stop)
            batches = client.batches(window.start, window.stop, plan)
            values = []
            for step, rate in zip(steps, rates, strict=True):
                terms, losses = client.step(algorithm.losses, batches.at(step), step, rate)
                values.append(losses)
                progress(1)
            recorded.append(torch.stack(values))
        return WindowLosses(terms, torch.stack(recorded).cpu())

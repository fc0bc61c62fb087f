"""A client: its model, its optimizer, its private data, its pool, and the step that it takes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.batches import Rows, Samples, WindowRows
from manyheads.experiment import TrainingConfig
from manyheads.models.client_model import ClientModel
from manyheads.models.flat import FlatState
from manyheads.pool import Pool
from manyheads.snapshot import Replica, WeightsSnapshot

Plan = Mapping[str, NDArray[Any]]  # what an algorithm drew for a window, each array with a leading axis of steps


@dataclass(frozen=True)
class Batch:
    """All that one step needs: private samples, public rows, and the algorithm's draws for this step."""

    private: Rows
    labels: Tensor
    public: Rows | None
    plan: Plan


Losses = Callable[["Client", Batch, int], Mapping[str, Tensor]]


@dataclass
class Client:
    """One participant. Nothing of it reaches another client but through a snapshot."""

    index: int
    name: str
    seed: int
    training: TrainingConfig
    make_model: Callable[[], ClientModel]  # its architecture, with numbers still to be filled in
    model: ClientModel
    private: Samples
    labels: Tensor  # of all training samples; only those of `private` are read
    public: Samples | None
    primary_labels: tuple[int, ...]
    label_distribution: NDArray[np.float64]  # of its private samples
    pool: Pool
    bytes_received: int = 0

    def __post_init__(self) -> None:
        self.state = FlatState(self.model)
        self.momentum = torch.zeros_like(self.state.parameters)

    @cached_property
    def replica(self) -> Replica:
        """Where this client's snapshots are asked."""
        like = self.state.values
        return Replica(self.make_model().to(device=like.device, dtype=like.dtype))

    def snapshot(self, step: int) -> WeightsSnapshot:
        """This client as it is now."""
        return WeightsSnapshot(self.index, step, self.state.values.clone(), self.state.copy_integers(), self.replica)

    def restored_snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> WeightsSnapshot:
        """This client as it was at `step`, from what `Snapshot.tensors` gave."""
        device = self.state.values.device
        integers = {name: tensors[f"integer {name}"].to(device) for name in self.state.integers}
        return WeightsSnapshot(self.index, step, tensors["values"].to(device), integers, self.replica)

    def batches(self, start: int, stop: int, plan: Plan) -> "WindowBatches":
        """The batches of steps start ... stop - 1."""
        return WindowBatches(self, start, stop, plan)

    def step(self, losses: Losses, batch: Batch, step: int, learning_rate: float) -> tuple[tuple[str, ...], Tensor]:
        """One step of SGD with momentum on the sum of the named losses; returns their names and values."""
        self.state.gradient.zero_()
        terms = losses(self, batch, step)
        values = torch.stack(tuple(terms.values()))
        values.sum().backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            gradient = self.state.gradient.add_(self.state.parameters, alpha=self.training.weight_decay)
            self.momentum.mul_(self.training.momentum).add_(gradient)
            self.state.parameters.sub_(self.momentum, alpha=learning_rate)
        return tuple(terms), values.detach()


class WindowBatches:
    """The batches of a window: every index and draw is made at once, the pixels when a batch is asked for."""

    def __init__(self, client: Client, start: int, stop: int, plan: Plan) -> None:
        self._client, self._start, self._plan = client, start, plan
        training = client.training
        self._private = client.private.window(start, stop, training.batch_size)
        self._public: WindowRows | None = None
        if client.public is not None:
            self._public = client.public.window(start, stop, training.public_batch_size)

    def at(self, step: int) -> Batch:
        """The batch of a step of the window."""
        client, dtype, step = self._client, self._client.state.values.dtype, step - self._start
        private = client.private.rows(self._private, step, dtype)
        public = None
        if client.public is not None and self._public is not None:
            public = client.public.rows(self._public, step, dtype)
        plan = {name: array[step] for name, array in self._plan.items()}
        return Batch(private, client.labels[private.samples], public, plan)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Linear warm-up, then a half cosine down to zero, or constant."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))

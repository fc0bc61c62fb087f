"""A client: its model, its optimizer, its private data, its pool, and a step of its training."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.client.plan import WindowPlan
from manyheads.config.experiment import TrainingConfig
from manyheads.data.batches import Rows, Samples, WindowRows
from manyheads.exchange.by_sample import AnswersBySample, ask_by_sample
from manyheads.exchange.origin import Origin
from manyheads.exchange.owner import Owner
from manyheads.exchange.pool import Pool
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.weights import Replica, WeightsSnapshot
from manyheads.models.client_model import ClientModel
from manyheads.models.dropout import begin_step, dropouts, seeded
from manyheads.models.flat import FlatState
from manyheads.outputs import Outputs
from manyheads.seeds import generator


@dataclass(frozen=True)
class ForeignEmbeddings:
    """The embeddings of a batch that others sent."""

    embeddings: list[Tensor]
    counts: list[Tensor] = field(default_factory=list)  # the weight of each; empty: 1
    known: list[Tensor | None] = field(default_factory=list)  # the samples that each covers; empty: all


class Batch:
    """The data of one step: private samples, public rows, and what the algorithm drew for it.

    Pixels are gathered when first asked for: a step that trains on private samples only reads no others. The plan
    is read through `number` and `array`, not directly, because a captured step (engine/cuda/) reads them on its device.
    """

    def __init__(
        self, client: "Client", private: Callable[[], Rows], public: Callable[[], Rows], plan: WindowPlan
    ) -> None:
        self._client, self._private, self._public, self.plan = client, private, public, plan

    @cached_property
    def private(self) -> Rows:
        return self._timed(self._private)

    @cached_property
    def labels(self) -> Tensor:
        """The labels of the private samples."""
        return self._client.private.labels(self.private.samples)

    @cached_property
    def public(self) -> Rows:
        return self._timed(self._public)

    def _timed(self, gather: Callable[[], Rows]) -> Rows:
        begun = time.perf_counter()
        rows = gather()
        self._client.data_seconds += time.perf_counter() - begun
        return rows

    def public_labels(self) -> Tensor:
        """Return the labels of the public samples, for measurements and for algorithms whose public set is labelled."""
        assert self._client.public is not None
        return self._client.public.labels(self.public.samples)

    @property
    def phase(self) -> int:
        """The kind of step, if the algorithm has several: `phase` of its plan."""
        assert self.plan.phase is not None, "the algorithm's plan has no phase"
        return int(self.plan.phase)

    def number(self, name: str) -> float | Tensor:
        """Return a number of the plan."""
        return float(self.plan.arrays[name])

    def array(self, name: str) -> Tensor | None:
        """Return an array of the plan on the device, or None if there is none."""
        drawn = self.plan.arrays.get(name)
        return None if drawn is None else torch.from_numpy(np.asarray(drawn)).to(self._client.state.values.device)

    @cached_property
    def foreign(self) -> list[Outputs]:
        """The outputs of the snapshots that teach (`targets` of the plan) for the public rows."""
        if self._by_sample is not None:
            return [answers.outputs for answers in self._by_sample]
        return [snapshot.outputs(self.public) for snapshot in self.teachers]

    @property
    def teachers(self) -> list[Snapshot]:
        """The snapshots that teach the whole batch."""
        drawn = self.plan.targets
        return [] if drawn is None else [self._client.pool.entries[entry] for entry in drawn.tolist()]

    @cached_property
    def _by_sample(self) -> list[AnswersBySample] | None:
        """The answers of each target, if each sample has its own teachers."""
        drawn = self.plan.targets
        if drawn is None or drawn.ndim == 1:
            return None
        return [ask_by_sample(self._client.pool.entries, own_B, self.public) for own_B in drawn]

    def teachers_JB(self) -> Tensor:
        """Return which clients teach each sample of the public batch: one row for each target."""
        drawn = np.zeros(0, np.int64) if self.plan.targets is None else self.plan.targets
        shape = len(drawn), len(self.public.samples)
        entries_JB = np.broadcast_to(drawn if drawn.ndim == 2 else drawn[:, None], shape)
        owners = np.array([entry.client for entry in self._client.pool.entries] or [0])
        return torch.from_numpy(owners[entries_JB]).to(self.public.samples.device)

    def foreign_embeddings(self) -> "ForeignEmbeddings":
        """Return the embeddings that the snapshots sent."""
        if self._by_sample is not None:
            each = [
                (of.embedding_BE[width], of.has_width_B[width]) for of in self._by_sample for width in of.embedding_BE
            ]
            return ForeignEmbeddings([embedding_BE for embedding_BE, _ in each], known=[has_B for _, has_B in each])
        sent = [outputs for outputs in self.foreign if outputs.embedding_BE is not None]
        known = [outputs.known_B for outputs in sent]
        embeddings = [outputs.embedding_BE for outputs in sent if outputs.embedding_BE is not None]
        return ForeignEmbeddings(embeddings, known=known if any(known_B is not None for known_B in known) else [])


Losses = Callable[["Client", Batch, int], Mapping[str, Tensor]]


@dataclass
class Client:
    """One participant. Nothing of it reaches another client except through a snapshot."""

    index: int
    name: str
    seed: int
    training: TrainingConfig
    make_model: Callable[[], ClientModel]  # a model of its architecture, with weights still to be filled in
    model: ClientModel
    private: Samples
    public: Samples | None
    primary_labels: tuple[int, ...]
    label_distribution: NDArray[np.float64]  # of its private samples
    kind_weights: NDArray[np.float64]  # the weight of each kind of test sample in its private accuracy
    pool: Pool
    clients: int  # their number
    origin: Origin  # of its snapshots
    log_prior_C: Tensor | None = None  # tau log prior of its labels (balance.py); None: not balanced
    own_statistics: Tensor | None = None  # for its own task (own_statistics.py), as of its last evaluation
    bytes_received: int = 0
    refused: int = 0  # answers of others that could not be used
    owners_keeping: set[int] = field(default_factory=set)  # clients that keep a snapshot that this one asks about again
    data_seconds: float = 0.0  # spent on drawing and gathering batches
    memory: dict[str, Tensor] = field(default_factory=dict)  # what an algorithm keeps of it between two exchanges

    def __post_init__(self) -> None:
        self.state = FlatState(self.model)
        self.momentum = torch.zeros_like(self.state.parameters)
        self.owner = Owner(self.index, self.schema, self.snapshot)
        self._dropouts = dropouts(self.model)

    @property
    def replica(self) -> Replica:
        """The model in which this client's snapshots are evaluated."""
        return self.origin.replica

    @property
    def schema(self) -> TableSchema | None:
        """The schema of tables of predictions, if these are exchanged."""
        return self.origin.schema

    def with_prior(self, logits_xC: Tensor) -> Tensor:
        """Return logits for the private task: plain ones answer as if labels were even, so the prior is added."""
        return logits_xC if self.log_prior_C is None else logits_xC + self.log_prior_C

    def private_loss(self, logits_BC: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of a head on private samples, with balance (`training.balance`)."""
        return cross_entropy(self.with_prior(logits_BC), labels)

    def summed_private_loss(self, logits_BKC: Tensor, labels: Tensor) -> Tensor:
        """Return the sum over heads of their private losses."""
        heads = logits_BKC.shape[1]
        return heads * self.private_loss(logits_BKC.flatten(0, 1), labels.repeat_interleave(heads))

    def snapshot(self, step: int) -> WeightsSnapshot:
        """Return this client as it is now."""
        return self.origin.checkpoint(step, self.state.values.clone(), self.state.copy_integers(), self.memory)

    def batches(self, start: int, stop: int, plan: WindowPlan) -> "WindowBatches":
        """Return the batches of steps start ... stop - 1."""
        return WindowBatches(self, start, stop, plan)

    def step(self, losses: Losses, batch: Batch, step: int, learning_rate: float) -> tuple[tuple[str, ...], Tensor]:
        """Take a step of SGD with momentum on the sum of the named losses; return their names and values."""
        self.state.gradient.zero_()
        with self._draws(step):
            terms = losses(self, batch, step)
            values = torch.stack(tuple(terms.values()))
            values.sum().backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            gradient = self.state.gradient.add_(self.state.parameters, alpha=self.training.weight_decay)
            self.momentum.mul_(self.training.momentum).add_(gradient)
            self.state.parameters.sub_(self.momentum, alpha=learning_rate)
        return tuple(terms), values.detach()

    def _draws(self, step: int) -> AbstractContextManager[None]:
        """Name the draws that the model makes in a step."""
        if self._dropouts:
            begin_step(self._dropouts, generator(self.seed, "dropout", self.index, step))
        if not self.model.external:
            return nullcontext()
        return seeded(generator(self.seed, "foreign draws", self.index, step), self.state.values.device)


class WindowBatches:
    """The batches of a window: every index is drawn at once, pixels are gathered when a batch is asked for."""

    def __init__(self, client: Client, start: int, stop: int, plan: WindowPlan) -> None:
        self._client, self._start, self._plan = client, start, plan
        training = client.training
        # A plan says which batch of the private stream is due, if not every step takes one.
        self._private_step = np.arange(start, stop) if plan.private_step is None else plan.private_step
        first, last = int(self._private_step[0]), int(self._private_step[-1])
        self._private = client.private.window(first, last + 1, training.batch_size)
        self._public: WindowRows | None = None
        if client.public is not None and plan.public is None:
            self._public = client.public.window(start, stop, training.public_batch_size)

    def at(self, step: int) -> Batch:
        """Return the batch of a step of the window."""
        client, dtype, step = self._client, self._client.state.values.dtype, step - self._start
        plan = self._plan.at(step)

        def private() -> Rows:
            return client.private.rows(self._private, int(self._private_step[step] - self._private_step[0]), dtype)

        def public() -> Rows:
            assert client.public is not None, "this algorithm reads no public data"
            if plan.public is not None:  # rows of the algorithm's own choosing
                return client.public.rows_in_view(plan.public, 0 if plan.view is None else int(plan.view), dtype)
            assert self._public is not None
            return client.public.rows(self._public, step, dtype)

        return Batch(client, private, public, plan)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, then a half cosine down to zero, or constant.

    >>> config = TrainingConfig(steps=100, learning_rate=0.5, warmup_steps=10, schedule="cosine")
    >>> [round(learning_rate(config, step), 3) for step in (0, 9, 10, 55, 99)]
    [0.05, 0.5, 0.5, 0.25, 0.0]
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))

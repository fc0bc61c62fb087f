"""Building the clients of an experiment, ready to train."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.client.balance import log_prior
from manyheads.client.client import Client
from manyheads.config.experiment import Experiment
from manyheads.data.arrays import ImageSet, Indices
from manyheads.data.batches import Pixels, Samples
from manyheads.evaluation.accuracy import EvaluationSet
from manyheads.evaluation.probe import probe_all
from manyheads.exchange.origin import Origin
from manyheads.exchange.pool import Pool
from manyheads.exchange.schema import TableSchema, first_occurrences
from manyheads.exchange.weights import Replica
from manyheads.imports import Trust
from manyheads.seeds import EVERYONE, generator
from manyheads.setup.device import device_named
from manyheads.setup.memory_limits import check_training_fits_memory
from manyheads.setup.resolve import resolve
from manyheads.setup.resolved import ResolvedExperiment


@dataclass(frozen=True)
class Ensemble:
    """The clients of an experiment, ready to train, and the parts of the data that evaluate them."""

    resolved: ResolvedExperiment
    clients: list[Client]  # all of them, or those that live in this process
    origins: list[Origin]  # of all clients' snapshots
    parts: list[EvaluationSet]  # the validation part if there is one, then the test set

    def probes(self) -> list[float]:
        """Return the shared accuracy that the embedding of each client here allows."""
        return probe_all(self.clients, self.resolved.all_private, self.parts[-1], self.resolved.dataset.classes)


def assemble(
    experiment: Experiment,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    *,
    pretrained: bool = True,
    trust: Trust | None = None,
) -> Ensemble:
    """Resolve an experiment and build its clients on a device, with initial weights; nothing is written.

    Without `pretrained`, the files of `model.weights` are not read, because a checkpoint will replace all weights.
    `trust` is passed to `resolve`.
    """
    where = device_named(device)
    resolved = resolve(experiment, pretrained=pretrained, trust=trust)
    if where.type == "cpu":
        check_training_fits_memory(resolved)
    return build_ensemble(resolved, where, dtype, pretrained=pretrained)


def build_ensemble(
    resolved: ResolvedExperiment,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    *,
    pretrained: bool = True,
    only: Collection[int] | None = None,
) -> Ensemble:
    """Build the clients of a resolved experiment; with `only`, those of this process: the others live elsewhere."""
    made = _Builder(resolved, device, dtype, pretrained=pretrained)
    every = range(resolved.experiment.clients)
    return Ensemble(
        resolved,
        clients=[made.client(index) for index in every if only is None or index in only],
        origins=made.origins,
        parts=made.parts(),
    )


class _Builder:
    """A builder of clients, which holds what they share."""

    def __init__(
        self, resolved: ResolvedExperiment, device: torch.device, dtype: torch.dtype, *, pretrained: bool
    ) -> None:
        self.resolved, self._device, self._dtype, self._pretrained = resolved, device, dtype, pretrained
        dataset, clients = resolved.dataset, range(resolved.experiment.clients)
        self._pixels: dict[int, Pixels] = {}  # by array: parts may share one
        self._first = {client: group[0] for group in resolved.groups for client in group}
        self._pools = {client: Pool(resolved.algorithm.pool_size or 0) for client in clients}
        self._label_counts = resolved.label_counts()
        self._tables = resolved.algorithm.table_contents(resolved.heads, dataset.classes)
        self._replicas: dict[object, Replica] = {}  # by architecture
        # Only named rows have a bounded number of views, and show equal pixels in equal views.
        self._names = dataset.public_set.names[resolved.split.public] if self._tables else None

    def client(self, index: int) -> Client:
        """Build a client with initial weights: its own, its group's or, if weights are averaged, everybody's."""
        resolved, first = self.resolved, self._first[index]
        experiment, counts = resolved.experiment, self._label_counts[index]
        start = EVERYONE if resolved.algorithm.averages_weights else first
        rng = generator(experiment.seed, "weights", start)
        model = resolved.architecture(index, rng, pretrained=self._pretrained)
        return Client(
            index=index,
            name=resolved.client_name(index),
            seed=experiment.seed,
            training=experiment.training,
            make_model=partial(resolved.architecture, index),
            model=model.to(device=self._device, dtype=self._dtype),
            private=self._private(index),
            public=self._public(index) if resolved.algorithm.reads_public else None,
            primary_labels=resolved.split.primary_labels[index],
            label_distribution=counts / counts.sum(),
            kind_weights=resolved.kind_weights(index),
            pool=self._pools[first],
            clients=experiment.clients,
            origin=self.origins[index],
            log_prior_C=self._log_prior(counts),
        )

    def _log_prior(self, counts: NDArray[np.int64]) -> torch.Tensor | None:
        balance = self.resolved.experiment.training.balance
        return torch.from_numpy(log_prior(counts, balance)).to(self._device, self._dtype) if balance else None

    @cached_property
    def origins(self) -> list[Origin]:
        samples = map(len, self.resolved.split.private)
        measure = self.resolved.algorithm.teacher_confidence
        return [Origin(i, n, partial(self._replica, i), self._schema, measure) for i, n in enumerate(samples)]

    def _replica(self, index: int) -> Replica:
        key = self.resolved.architecture_key(index)
        if key not in self._replicas:
            made = self.resolved.architecture(index)
            self._replicas[key] = Replica(made.to(device=self._device, dtype=self._dtype))
        return self._replicas[key]

    def parts(self) -> list[EvaluationSet]:
        """Return the parts of the data that evaluate clients."""
        dataset, validation = self.resolved.dataset, self.resolved.split.validation
        parts = [self._part("validation", dataset.train, validation)] if len(validation) else []
        return [*parts, self._part("test", dataset.test, dataset.test.used)]

    def _part(self, name: str, of: ImageSet, chosen: Indices) -> EvaluationSet:
        arrays = (chosen, of.known_labels[chosen], self.resolved.kinds(of)[chosen])
        samples, labels, kinds = (torch.from_numpy(array).to(self._device) for array in arrays)
        return EvaluationSet(name, self._stored(of), samples, labels, kinds, self.resolved.number_of_kinds)

    def _stored(self, of: ImageSet) -> Pixels:
        key = id(of.images)
        if key not in self._pixels:
            self._pixels[key] = Pixels(of.images, self._device)
        return self._pixels[key]

    @cached_property
    def _labels(self) -> dict[str, torch.Tensor | None]:
        """Return the labels of all training samples, and those of the public set."""
        sets = {"private": self.resolved.dataset.train, "public": self.resolved.dataset.public_set}
        return {
            name: None if of.labels is None else torch.from_numpy(np.array(of.labels)).to(self._device)
            for name, of in sets.items()
        }

    def _private(self, client: int) -> Samples:
        experiment = self.resolved.experiment
        return Samples(
            self._stored(self.resolved.dataset.train),
            self._labels["private"],
            self.resolved.split.private[client],
            seed=experiment.seed,
            purpose="private",
            client=client,
            augment=experiment.data.augment,
            views_of=client,
        )

    def _public(self, client: int) -> Samples:
        experiment = self.resolved.experiment
        return Samples(
            self._stored(self.resolved.dataset.public_set),
            self._labels["public"],
            self.resolved.split.public,
            seed=experiment.seed,
            purpose="public",
            client=client,
            augment=experiment.data.augment,
            views_of=EVERYONE,
            views=None if self._names is None else experiment.data.public_views,
            first_occurrence=None if self._names is None else first_occurrences(self._names),
        )

    @cached_property
    def _schema(self) -> TableSchema | None:
        """Return the schema of tables; None if no predictions are exchanged.

        A table holds every row unless a client draws fewer until the next exchange and can ask again then. The members
        of a group share tables but draw different rows, so theirs are whole.
        """
        resolved, experiment = self.resolved, self.resolved.experiment
        if self._tables is None or self._names is None:
            return None
        drawn = resolved.algorithm.rows_per_exchange(experiment.training.public_batch_size)
        every = len(np.unique(self._names)) * experiment.data.public_views
        alone = len(resolved.groups) == experiment.clients
        return TableSchema(
            experiment=experiment.fingerprint(),
            form=self._tables.form,
            rest=self._tables.rest,
            embedding_widths=resolved.embedding_widths if self._tables.embedding else (0,) * experiment.clients,
            public=self._public(EVERYONE),
            names_P=self._names,
            whole=drawn is None or every <= drawn or resolved.graph.changes or not alone,
        )

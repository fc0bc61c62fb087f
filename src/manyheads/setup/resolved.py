"""A resolved experiment: complete, with its data, and found consistent."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from manyheads.algorithms.base import Algorithm
from manyheads.config.experiment import Experiment
from manyheads.data.arrays import Dataset, ImageSet, Indices, Labels
from manyheads.data.split import Split
from manyheads.graph import CommunicationGraph
from manyheads.imports import Trust
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.facts import ModelFacts

MAX_RELATED_CLIENTS = 64  # with more clients, pairs are measured on request only


@dataclass(frozen=True)
class ResolvedExperiment:
    """An experiment with all defaults and its data, found consistent; no model is made yet."""

    experiment: Experiment  # complete, with defaults
    dataset: Dataset
    split: Split
    groups: tuple[tuple[int, ...], ...]  # the nodes of the graph; usually each client is one
    graph: CommunicationGraph
    algorithm: Algorithm
    models: tuple[ModelFacts, ...]  # by client
    trust: Trust  # which code it may import, here and in workers
    problems: tuple[str, ...]  # why it cannot be trained, if it was resolved to look at the data only

    @property
    def heads(self) -> int:
        return heads_of(self.experiment, self.algorithm)

    @property
    def measures_relations(self) -> bool:
        """Return whether every evaluation measures pairs of clients."""
        asked = self.experiment.evaluate.relations
        return self.experiment.clients <= MAX_RELATED_CLIENTS if asked is None else asked

    @property
    def embedding_widths(self) -> tuple[int, ...]:
        """Return the width of each client's embedding."""
        return tuple(model.embedding_width for model in self.models)

    def architecture(
        self, client: int, rng: np.random.Generator | None = None, *, pretrained: bool = True
    ) -> ClientModel:
        """Make a client's model, with initial weights if there is an `rng`; otherwise they are filled in later."""
        config = self.experiment.model.for_client(client)
        return make_model(
            config if pretrained else config.model_copy(update={"weights": None}),
            image_shape=self.dataset.image_shape,
            heads=self.heads,
            classes=self.dataset.classes,
            foreign_widths=self.foreign_widths(client),
            rng=rng,
            trust=self.trust,
        )

    def architecture_key(self, client: int) -> tuple[object, ...]:
        """Return a key that is equal for clients whose models differ only in their weights."""
        config = self.experiment.model.for_client(client).model_copy(update={"weights": None})
        return config, tuple(self.foreign_widths(client))

    def foreign_widths(self, client: int) -> list[int]:
        """Return the widths of other clients' embeddings, to which the client must map its own."""
        if not self.algorithm.compares_embeddings:
            return []
        return sorted(set(self.embedding_widths) - {self.embedding_widths[client]})

    @cached_property
    def exchange_steps(self) -> frozenset[int]:
        """Return the steps before which clients meet."""
        return frozenset(self.algorithm.exchange_steps(self.experiment.training.steps))

    @cached_property
    def averaging_steps(self) -> frozenset[int]:
        """Return the steps before which the members of a group average: also before each exchange, and at the end."""
        every, steps = self.algorithm.group_every, self.experiment.training.steps
        if every is None or len(self.groups) == self.experiment.clients:
            return frozenset()
        return frozenset({*range(every, steps, every), *self.exchange_steps, steps} - {0})  # they start out equal

    def hops(self, step: int) -> list[list[int | None]]:
        """Return at [i][j] the hops from client j to client i; within a group there are none."""
        node = {client: number for number, group in enumerate(self.groups) for client in group}
        away = self.graph.hops(step)
        return [[away[node[i]][node[j]] for j in range(len(node))] for i in range(len(node))]

    def label_counts(self) -> NDArray[np.int64]:
        """Return the counts of private samples: clients x classes."""
        return self.split.label_counts(self.dataset.train.known_labels, self.dataset.classes)

    def classes_without_samples(self) -> list[int]:
        """Return the labels of the private task of which no client has a private sample."""
        return np.flatnonzero(self.label_counts().sum(0)[: self.dataset.private_classes] == 0).tolist()

    def sample_counts(self) -> dict[str, int]:
        """Return the number of samples of each part."""
        parts, training = self.split, len(self.dataset.train.used)
        of_training = [parts.validation, *parts.private, *([parts.public] if self.dataset.public is None else [])]
        return {
            "training": training,
            "public": len(parts.public),
            "validation": len(parts.validation),
            "private": sum(map(len, parts.private)),
            "unused": training - len(np.unique(np.concatenate(of_training))),
            "test": len(self.dataset.test.used),
        }

    @cached_property
    def all_private(self) -> Indices:
        """Return the positions of the private samples of all clients."""
        return np.concatenate(self.split.private)

    def client_name(self, client: int) -> str:
        return self.dataset.client_names[client] if self.dataset.client_names else f"client-{client}"

    def kinds(self, of: ImageSet) -> Labels:
        """Return the kind of each sample, which weights private accuracy: its owner, or its finest known class."""
        return of.finest if of.owners is None else of.owners

    @cached_property
    def number_of_kinds(self) -> int:
        return 1 + int(max(self.kinds(part)[part.used].max() for part in (self.dataset.train, self.dataset.test)))

    def kind_weights(self, client: int) -> NDArray[np.float64]:
        """Return the weight of each kind for a client: its share among the client's private samples."""
        own = self.kinds(self.dataset.train)[self.split.private[client]]
        return np.bincount(own, minlength=self.number_of_kinds) / len(own)


def heads_of(experiment: Experiment, algorithm: Algorithm) -> int:
    return 1 + (experiment.model.auxiliary_heads if algorithm.has_auxiliary_heads else 0)

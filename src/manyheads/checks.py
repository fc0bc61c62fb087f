"""Everything that an experiment says, loaded and found consistent; no model is trained and nothing is written."""

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads import algorithms
from manyheads.algorithms.base import Algorithm
from manyheads.data.arrays import Dataset, ImageSet, Labels
from manyheads.data.loading import load
from manyheads.data.split import Split, default_per_client, split
from manyheads.data.views import model_input
from manyheads.errors import ConfigurationError, ModelError
from manyheads.experiment import Experiment, ModelConfig
from manyheads.graph import CommunicationGraph, with_defaults
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.dropout import seeded
from manyheads.models.facts import ModelFacts, try_out
from manyheads.models.foreign import is_foreign
from manyheads.seeds import generator


@dataclass(frozen=True)
class Checked:
    """All that an experiment says, found consistent; no model is made yet."""

    experiment: Experiment  # complete, with defaults
    dataset: Dataset
    split: Split
    groups: tuple[tuple[int, ...], ...]  # the nodes of the graph; mostly each client is one
    graph: CommunicationGraph
    algorithm: Algorithm
    models: tuple[ModelFacts, ...]  # by client
    problems: tuple[str, ...]  # why it could not be trained, where that was not asked for

    @property
    def heads(self) -> int:
        return _heads(self.experiment, self.algorithm)

    @property
    def embedding_widths(self) -> tuple[int, ...]:
        """By client."""
        return tuple(model.embedding_width for model in self.models)

    def architecture(
        self, client: int, rng: np.random.Generator | None = None, *, pretrained: bool = True
    ) -> ClientModel:
        """A client's model; with `rng` it has first weights, without its numbers are still to be filled in."""
        config = self.experiment.model.of(client)
        return make_model(
            config if pretrained else config.model_copy(update={"weights": None}),
            image_shape=self.dataset.image_shape,
            heads=self.heads,
            classes=self.dataset.classes,
            foreign_widths=self.foreign_widths(client),
            rng=rng,
        )

    def architecture_key(self, client: int) -> tuple[object, ...]:
        """Equal for clients whose models differ in nothing but their numbers."""
        config = self.experiment.model.of(client).model_copy(update={"weights": None})
        return config, tuple(self.foreign_widths(client))

    def foreign_widths(self, client: int) -> list[int]:
        """Widths of embeddings that the client must map its own to."""
        if not self.algorithm.compares_embeddings:
            return []
        return sorted(set(self.embedding_widths) - {self.embedding_widths[client]})

    @cached_property
    def exchange_steps(self) -> frozenset[int]:
        """Before which steps clients meet."""
        return frozenset(self.algorithm.exchange_steps(self.experiment.training.steps))

    @cached_property
    def averaging_steps(self) -> frozenset[int]:
        """Before which steps the members of a group average; always before they meet others, and at the end."""
        every, steps = self.algorithm.group_every, self.experiment.training.steps
        if every is None or len(self.groups) == self.experiment.clients:
            return frozenset()
        return frozenset({*range(every, steps, every), *self.exchange_steps, steps} - {0})  # they start as equals

    def hops(self, step: int) -> list[list[int | None]]:
        """[i][j]: hops from client j to client i; within a group there are none."""
        node = {client: number for number, group in enumerate(self.groups) for client in group}
        away = self.graph.hops(step)
        return [[away[node[i]][node[j]] for j in range(len(node))] for i in range(len(node))]

    def label_counts(self) -> NDArray[np.int64]:
        """Clients x classes: private samples."""
        return self.split.label_counts(self.dataset.train.known_labels, self.dataset.classes)

    def classes_without_samples(self) -> list[int]:
        """Labels of the private task that no client has a private sample of."""
        return np.flatnonzero(self.label_counts().sum(0)[: self.dataset.private_classes] == 0).tolist()

    def serves(self, experiment: Experiment, labelled_public: bool) -> bool:
        """Whether another experiment reads the same data."""
        same = complete(experiment, self.dataset).data == self.experiment.data
        return same and labelled_public == self.algorithm.reads_public_labels

    def sample_counts(self) -> dict[str, int]:
        """How many samples each part has."""
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

    def client_name(self, client: int) -> str:
        return self.dataset.client_names[client] if self.dataset.client_names else f"client-{client}"

    def kinds(self, of: ImageSet) -> Labels:
        """By what private accuracy is weighted: who brought a sample, or its finest known class."""
        return of.finest if of.owners is None else of.owners

    @cached_property
    def number_of_kinds(self) -> int:
        return 1 + int(max(self.kinds(part)[part.used].max() for part in (self.dataset.train, self.dataset.test)))

    def judged_by(self, client: int) -> NDArray[np.float64]:
        """How much each kind counts for a client: as much as among its private samples."""
        own = self.kinds(self.dataset.train)[self.split.private[client]]
        return np.bincount(own, minlength=self.number_of_kinds) / len(own)

    @cached_property
    def notes(self) -> list[str]:
        """What a person should know before training: about the files, and about images that are there twice."""
        return [*self.problems, *self.dataset.notes, *self._duplicates(), *self._odd_settings()]

    def _odd_settings(self) -> list[str]:
        """What is allowed and seldom meant."""
        data, found = self.experiment.data, []
        if self.algorithm.needs_neighbours and self.exchange_steps == {0}:
            found.append("clients exchange nothing but their first weights: training.steps is not above one exchange")
        idle = [f"algorithm.{key}" for key in self.algorithm.idle(self.dataset.classes)]
        predicted = self.algorithm.sent(self.heads, self.dataset.classes) is not None
        if data.public_views > 1 and not predicted:
            idle.append("data.public_views")
        if idle:
            found.append(f"without effect, because no predictions are exchanged: {', '.join(idle)}")
        if data.public_views > 1 and predicted and data.augment == "none":
            found.append('without effect, because data.augment = "none" has one view: data.public_views')
        if any(self.split.primary_labels) and (without := sum(not labels for labels in self.split.primary_labels)):
            key = "clients_per_label" if data.primary_labels.assignment == "even" else "per_client"
            found.append(
                f"{without} of {self.experiment.clients} clients have no primary label: take fewer clients, or raise "
                f"data.primary_labels.{key}"
            )
        if self.experiment.model.heads_see == "feature_map" and self.experiment.evaluate.probe:
            found.append("the probe is of embeddings; heads that see feature maps may know more than it says")
        nobodys = set(range(self.dataset.private_classes)).difference(*self.split.primary_labels)
        if math.isinf(data.skew) and any(self.split.primary_labels) and nobodys:
            names = ", ".join(self.dataset.class_names[label] for label in sorted(nobodys)[:5])
            found.append(
                f"{len(nobodys)} label(s) are nobody's primary label and go evenly to all: {names}; "
                'data.primary_labels.assignment = "even" leaves none out'
            )
        return found

    def _duplicates(self) -> list[str]:
        """Images that are in two parts which should have none in common, a line for each kind."""
        data, private = self.dataset, np.concatenate(self.split.private)
        test, owned = data.test.names[data.test.used], data.train.names[private]
        public = data.public_set.names[self.split.public]
        twice, count = np.unique(
            np.concatenate([np.unique(data.train.names[own]) for own in self.split.private]), return_counts=True
        )
        found = [
            (np.isin(test, owned).sum(), f"of {len(test)} test images are private training images too"),
            (np.isin(test, public).sum(), f"of {len(test)} test images are public images too"),
            ((count > 1).sum(), f"of {len(twice)} different private images are held by two clients or more"),
        ]
        if self.experiment.data.public != "all":
            found.append(
                (np.isin(public, owned).sum(), f"of {len(public)} public images are somebody's private ones too")
            )
        return [f"{number} {text} (the same pixels)" for number, text in found if number]


def check(
    experiment: Experiment, *, pretrained: bool = False, loaded: Checked | None = None, to_train: bool = True
) -> Checked:
    """Load the data and check everything; raise where something is wrong. `pretrained`: also the files of weights.

    Data that were loaded for another experiment with the same `[data]` need not be loaded again. Not `to_train`, only
    to look at the data: what training would refuse is a note.
    """
    algorithm = algorithms.make_algorithm(experiment.algorithm)
    labelled = algorithm.reads_public_labels
    if loaded is not None and loaded.serves(experiment, labelled):
        dataset = loaded.dataset
    else:
        dataset = load(experiment.data, labelled_public=labelled)
    if experiment.clients > len(dataset.train.used):
        raise ConfigurationError(
            f"clients = {experiment.clients}: more than the {len(dataset.train.used)} training samples"
        )
    if dataset.client_names and len(dataset.client_names) != experiment.clients:
        names = ", ".join(dataset.client_names[:5]) + (", ..." if len(dataset.client_names) > 5 else "")
        raise ConfigurationError(
            f"clients = {experiment.clients}: data.path holds {len(dataset.client_names)} ({names}); "
            f"give clients = {len(dataset.client_names)}"
        )
    experiment = complete(experiment, dataset)
    algorithm = algorithms.make_algorithm(experiment.algorithm)
    groups = _groups(experiment, algorithm)
    graph = _graph(experiment, len(groups))
    parts = split(experiment.data, dataset, experiment.clients, experiment.seed)
    algorithm.check(experiment.training.steps, dataset.classes)
    problems = []
    try:
        _check(experiment, algorithm, graph, parts, dataset)
    except ConfigurationError as error:
        if to_train:
            raise
        problems = [f"to train, this has to change: {error}"]
    models = _models(experiment, dataset, algorithm, pretrained=pretrained)
    checked = Checked(experiment, dataset, parts, groups, graph, algorithm, models, tuple(problems))
    _check_equal_models(checked)
    return checked


def complete(experiment: Experiment, dataset: Dataset) -> Experiment:
    """The experiment with every default written out, as its run folder holds it."""
    classes = dataset.private_classes
    data: dict[str, Any] = {}
    if experiment.data.public is None:
        simulated = "none" if dataset.client_names else "fraction"  # nothing is taken from those who bring their data
        data["public"] = simulated if dataset.public is None else "own"
    if dataset.set_aside is not None:
        data["test_fraction"] = dataset.set_aside
    experiment = experiment.with_values(data=data)
    data = {"private_fraction": experiment.data.private_share}
    primary = experiment.data.primary_labels
    if primary.assignment == "random" and primary.per_client is None:
        data["primary_labels"] = {"assignment": "random", "per_client": default_per_client(classes)}
    algorithm = algorithms.with_defaults(experiment.algorithm, dataset.classes)
    graph = with_defaults(experiment.graph)
    return experiment.with_values(data=data, algorithm=algorithm.model_dump(), graph=graph.model_dump())


def _groups(experiment: Experiment, algorithm: Algorithm) -> tuple[tuple[int, ...], ...]:
    """The nodes of the graph: the groups, or each client by itself."""
    if not experiment.groups:
        return tuple((client,) for client in range(experiment.clients))
    if algorithm.group_every is None:
        raise ConfigurationError(
            f'groups: algorithm.name = "{experiment.algorithm.name}" knows no groups, "mhd" does; leave them out'
        )
    listed = sorted(client for group in experiment.groups for client in group)
    if listed != list(range(experiment.clients)) or not all(experiment.groups):
        raise ConfigurationError(
            f"groups: each of the clients 0 to {experiment.clients - 1} must be in exactly one group, none empty"
        )
    if experiment.algorithm.options().get("confidence") == "density":
        raise ConfigurationError(
            'groups: algorithm.confidence = "density" measures what one client trained on; take "max_probability"'
        )
    return tuple(tuple(sorted(group)) for group in experiment.groups)


def _graph(experiment: Experiment, nodes: int) -> CommunicationGraph:
    try:
        return CommunicationGraph(experiment.graph, nodes, experiment.seed)
    except ConfigurationError as error:
        text = str(error)
        raise ConfigurationError(text.replace("client", "group") if experiment.groups else text) from None


def _heads(experiment: Experiment, algorithm: Algorithm) -> int:
    return 1 + (experiment.model.auxiliary_heads if algorithm.teaches_heads else 0)


def _models(
    experiment: Experiment, dataset: Dataset, algorithm: Algorithm, *, pretrained: bool
) -> tuple[ModelFacts, ...]:
    """By client. Each different model is made and tried out once, which shows what is wrong with it."""
    for key, given in experiment.model.lists.items():
        if given != experiment.clients:
            raise ConfigurationError(
                f"model.{key}: a list of {given} for clients = {experiment.clients}; give one for all or one for each"
            )
    heads, tried = _heads(experiment, algorithm), dict[ModelConfig, ModelFacts]()
    configs = [experiment.model.of(client) for client in range(experiment.clients)]
    for client, config in enumerate(configs):
        if config not in tried:
            shown = config if pretrained else config.model_copy(update={"weights": None})
            tried[config] = _tried(shown, dataset, heads, client, generator(experiment.seed, "weights", client))
    found = [tried[config] for config in configs]
    widths = {facts.embedding_width for facts in found} if algorithm.compares_embeddings else set()
    return tuple(
        replace(own, parameters=own.parameters + own.embedding_width * sum(widths - {own.embedding_width}))
        for own in found  # the maps
    )


def _tried(config: ModelConfig, dataset: Dataset, heads: int, client: int, rng: np.random.Generator) -> ModelFacts:
    """One client's model, asked about two samples."""
    backbone, width = str(config.backbone), config.width
    assert isinstance(width, int), "of one client"
    images = model_input(torch.from_numpy(dataset.train.images[dataset.train.used[[0, -1]]]), torch.float32)
    try:
        model = make_model(config, image_shape=dataset.image_shape, heads=heads, classes=dataset.classes, rng=rng)
        with seeded(rng) if model.foreign else nullcontext():
            return try_out(model, images, backbone, width)
    except ModelError as error:
        raise ConfigurationError(f"client {client} ({backbone}): {error.problem}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"client {client}: {error}" if is_foreign(backbone) else str(error)) from None
    except (RuntimeError, MemoryError):
        key = f"model.width = {width}"
        if config.heads_see == "feature_map" and not is_foreign(backbone):
            key += ', model.heads_see = "feature_map"'
        raise ConfigurationError(f"{key}: such a {backbone} does not fit into memory") from None


def _check_equal_models(checked: Checked) -> None:
    """Where weights are averaged, among neighbours or within a group, they must be those of the same model."""
    experiment = checked.experiment
    pairs = [(group[0], member, "groups") for group in checked.groups for member in group[1:]]
    if checked.algorithm.averages_weights:
        key = f'algorithm.name = "{experiment.algorithm.name}"'
        pairs += [(i, j, key) for i, j in sorted(checked.graph.edges())]
    for i, j, key in pairs:
        one, other = experiment.model.of(i), experiment.model.of(j)
        if one != other:
            raise ConfigurationError(
                f"{key}: the weights of client {i} ({_shown(one)}) and client {j} ({_shown(other)}) cannot be "
                "averaged; give them the same model" + ("" if key == "groups" else ', or take algorithm.name = "mhd"')
            )


def _shown(model: ModelConfig) -> str:
    return f"{model.backbone}, width {model.width}" + (f", weights {model.weights}" if model.weights else "")


def _check(
    experiment: Experiment, algorithm: Algorithm, graph: CommunicationGraph, parts: Split, dataset: Dataset
) -> None:
    """What only the whole experiment can tell."""
    training, private = experiment.training, sum(len(own) for own in parts.private)
    if training.batch_size > private:
        raise ConfigurationError(
            f"training.batch_size = {training.batch_size}: larger than all {private} private samples; at most {private}"
        )
    if training.warmup_steps > training.steps:
        raise ConfigurationError(
            f"training.warmup_steps = {training.warmup_steps}: longer than training.steps = {training.steps}; "
            f"take fewer, such as {training.steps // 10}"
        )
    if algorithm.needs_neighbours and graph.clients == 1:
        raise ConfigurationError(
            f"{'groups: one group only' if experiment.groups else 'clients = 1'}: algorithm.name = "
            f'"{experiment.algorithm.name}" needs at least 2 {"groups" if experiment.groups else "clients"}; '
            + ('leave groups out and take "averaging"' if experiment.groups else 'for one model alone take "separate"')
        )
    exchanges = algorithm.exchange_steps(training.steps)
    if algorithm.needs_neighbours and not exchanges:
        raise ConfigurationError(
            f"training.steps = {training.steps}: nothing is exchanged in so few; lower algorithm.pool_every"
        )
    lonely = graph.lonely(exchanges) if algorithm.needs_neighbours else []
    if lonely:
        raise ConfigurationError(
            f'graph.name = "{experiment.graph.name}": {"group" if experiment.groups else "client"} {lonely[0]} has '
            "nobody to learn from, which "
            f'algorithm.name = "{experiment.algorithm.name}" needs; give it an edge or take "separate"'
        )
    if algorithm.teaches_heads and experiment.model.auxiliary_heads < 1:
        raise ConfigurationError(
            f'model.auxiliary_heads = 0: algorithm.name = "{experiment.algorithm.name}" teaches auxiliary heads; '
            "give at least 1"
        )
    if algorithm.reads_public:
        _check_public(experiment, algorithm, parts, dataset)


def _check_public(experiment: Experiment, algorithm: Algorithm, parts: Split, dataset: Dataset) -> None:
    """What an algorithm that trains on the public set needs of it."""
    training = experiment.training
    if len(parts.public) == 0:
        if experiment.data.public == "none":
            raise ConfigurationError(
                "data.public: there is no public set; name one, such as "
                '{ source = "folder", path = ... }, or put its images into a folder "public" beside the clients'
            )
        raise ConfigurationError("data.public_fraction = 0: the public set has no samples; raise it")
    if algorithm.reads_public_labels and dataset.public_set.labels is None:
        raise ConfigurationError(
            f'data.public: algorithm.name = "{experiment.algorithm.name}" would train on the labels of the public set, '
            "which has none; set algorithm.first_public_steps = 0"
        )
    if algorithm.reads_public_labels and experiment.data.public == "all":
        raise ConfigurationError(
            f'data.public = "all": algorithm.name = "{experiment.algorithm.name}" would train on the labels of '
            "everybody's private samples; give a public_fraction"
        )
    if training.public_batch_size > len(parts.public):
        more = ", or raise data.public_fraction" if experiment.data.public == "fraction" else ""
        raise ConfigurationError(
            f"training.public_batch_size = {training.public_batch_size}: larger than the {len(parts.public)} "
            f"public samples; at most {len(parts.public)}{more}"
        )

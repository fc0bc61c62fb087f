"""From an experiment to clients that are ready to train: everything is loaded and checked here, nothing is written."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads import algorithms
from manyheads.algorithms.base import Algorithm
from manyheads.client import Client
from manyheads.data import sources
from manyheads.data.arrays import Dataset
from manyheads.data.batches import Samples, on_device
from manyheads.data.split import Split, default_per_client, split
from manyheads.errors import ConfigurationError
from manyheads.evaluate import Part
from manyheads.experiment import Experiment
from manyheads.graph import CommunicationGraph, with_defaults
from manyheads.models.client_model import ClientModel, initialise, make_model
from manyheads.pool import Pool
from manyheads.seeds import EVERYONE, generator


@dataclass(frozen=True)
class Checked:
    """All that an experiment says, found consistent; no model is made yet."""

    experiment: Experiment  # complete, with defaults
    dataset: Dataset
    split: Split
    graph: CommunicationGraph
    algorithm: Algorithm

    @property
    def heads(self) -> int:
        return 1 + (self.experiment.model.auxiliary_heads if self.algorithm.distils else 0)

    def architecture(self) -> ClientModel:
        """A client's model, with its numbers still to be filled in."""
        return make_model(
            self.experiment.model,
            channels=self.dataset.image_shape[2],
            heads=self.heads,
            classes=self.dataset.classes,
        )

    def label_counts(self) -> NDArray[np.int64]:
        """Clients x classes: private samples."""
        return self.split.label_counts(self.dataset.train_labels, self.dataset.classes)

    def classes_without_samples(self) -> list[int]:
        """Labels that no client has a private sample of."""
        return [int(label) for label in np.flatnonzero(self.label_counts().sum(0) == 0)]


@dataclass(frozen=True)
class Ensemble(Checked):
    """Everything an experiment describes, ready to train."""

    clients: list[Client]
    parts: list[Part]  # the validation part where there is one, then the test set


def check(experiment: Experiment) -> Checked:
    """Load the data and check everything; raise where something is wrong."""
    dataset = sources.load(experiment.data)
    if experiment.clients > len(dataset.train_labels):
        raise ConfigurationError(
            f"clients = {experiment.clients}: more than the {len(dataset.train_labels)} training samples"
        )
    experiment = complete(experiment, dataset.classes)
    algorithm = algorithms.make_algorithm(experiment.algorithm)
    graph = CommunicationGraph(experiment.graph, experiment.clients, experiment.seed)
    parts = split(experiment.data, dataset.train_labels, dataset.classes, experiment.clients, experiment.seed)
    _check(experiment, algorithm, graph, parts)
    checked = Checked(experiment, dataset, parts, graph, algorithm)
    try:
        checked.architecture()
    except (RuntimeError, MemoryError):
        raise ConfigurationError(
            f"model.width = {experiment.model.width}: such a {experiment.model.backbone} does not fit into memory"
        ) from None
    return checked


def assemble(experiment: Experiment, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Ensemble:
    """Everything on its device, with first weights; nothing is written."""
    where = device_named(device)
    checked = check(experiment)
    experiment, dataset, parts = checked.experiment, checked.dataset, checked.split
    images, labels = on_device(dataset.train_images, dataset.train_labels, where)
    test_images, test_labels = on_device(dataset.test_images, dataset.test_labels, where)
    judged_by = [Part("test", test_images, test_labels)]
    if len(parts.validation):
        validation = torch.from_numpy(parts.validation).to(where)
        judged_by.insert(0, Part("validation", images[validation], labels[validation]))
    counts = checked.label_counts()

    def samples(client: int, part: str) -> Samples:
        return Samples(
            images,
            parts.public if part == "public" else parts.private[client],
            seed=experiment.seed,
            purpose=part,
            client=client,
            augment=experiment.data.augment,
            views_of=EVERYONE if part == "public" else client,
        )

    def client(index: int) -> Client:
        model = checked.architecture()
        initialise(model, generator(experiment.seed, "weights", index))
        return Client(
            index=index,
            name=f"client-{index}",
            seed=experiment.seed,
            training=experiment.training,
            make_model=checked.architecture,
            model=model.to(device=where, dtype=dtype),
            private=samples(index, "private"),
            labels=labels,
            public=samples(index, "public") if checked.algorithm.distils else None,
            primary_labels=parts.primary_labels[index],
            label_distribution=counts[index] / counts[index].sum(),
            pool=Pool(checked.algorithm.pool_size),
        )

    clients = [client(index) for index in range(experiment.clients)]
    return Ensemble(experiment, dataset, parts, checked.graph, checked.algorithm, clients, judged_by)


def complete(experiment: Experiment, classes: int) -> Experiment:
    """The experiment with every default written out, as its run folder holds it."""
    data: dict[str, Any] = {"private_fraction": experiment.data.private_share}
    primary = experiment.data.primary_labels
    if primary.assignment == "random" and primary.per_client is None:
        data["primary_labels"] = {"assignment": "random", "per_client": default_per_client(classes)}
    algorithm, graph = algorithms.with_defaults(experiment.algorithm), with_defaults(experiment.graph)
    return experiment.with_values(data=data, algorithm=algorithm.model_dump(), graph=graph.model_dump())


def _check(experiment: Experiment, algorithm: Algorithm, graph: CommunicationGraph, parts: Split) -> None:
    """What only the whole experiment can tell."""
    training, private = experiment.training, sum(len(own) for own in parts.private)
    if training.batch_size > private:
        raise ConfigurationError(
            f"training.batch_size = {training.batch_size}: larger than all {private} private samples; at most {private}"
        )
    if training.warmup_steps > training.steps:
        raise ConfigurationError(
            f"training.warmup_steps = {training.warmup_steps}: longer than training.steps = {training.steps}"
        )
    if algorithm.needs_neighbours and experiment.clients == 1:
        raise ConfigurationError(
            f'clients = 1: algorithm.name = "{experiment.algorithm.name}" needs at least 2 clients; '
            'for one model alone take algorithm.name = "separate"'
        )
    exchanges = algorithm.exchange_steps(training.steps)
    if algorithm.needs_neighbours and not exchanges:
        raise ConfigurationError(
            f"training.steps = {training.steps}: nothing is exchanged in so few; lower algorithm.pool_every"
        )
    lonely = graph.lonely(exchanges) if algorithm.needs_neighbours else []
    if lonely:
        raise ConfigurationError(
            f'graph.name = "{experiment.graph.name}": client {lonely[0]} has nobody to learn from, which '
            f'algorithm.name = "{experiment.algorithm.name}" needs; give it an edge or take "separate"'
        )
    if not algorithm.distils:
        return
    if experiment.model.auxiliary_heads < 1:
        raise ConfigurationError(
            f'model.auxiliary_heads = 0: algorithm.name = "{experiment.algorithm.name}" teaches auxiliary heads; '
            "give at least 1"
        )
    if len(parts.public) == 0:
        raise ConfigurationError("data.public_fraction = 0: the public set has no samples; raise it")
    if training.public_batch_size > len(parts.public):
        raise ConfigurationError(
            f"training.public_batch_size = {training.public_batch_size}: larger than the {len(parts.public)} "
            f"public samples; at most {len(parts.public)}, or raise data.public_fraction"
        )


def device_named(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f"--device {name}: unknown device; cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigurationError(f"--device {name}: unknown device; cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f"--device {name}: this machine has no CUDA device that PyTorch can use; take cpu")
    return device

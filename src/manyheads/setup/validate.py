"""Checks that need the whole experiment: keys that contradict each other or the data."""

from typing import TYPE_CHECKING

from manyheads.config.experiment import Experiment, ModelConfig, TrainingConfig
from manyheads.errors import ConfigurationError

if TYPE_CHECKING:
    from manyheads.algorithms.base import Algorithm
    from manyheads.data.arrays import Dataset
    from manyheads.data.split import Split
    from manyheads.graph import CommunicationGraph
    from manyheads.setup.resolved import ResolvedExperiment


def check_equal_models(resolved: "ResolvedExperiment") -> None:
    """Raise if weights of different models would be averaged, among neighbours or within a group."""
    experiment = resolved.experiment
    pairs = [(group[0], member, "groups") for group in resolved.groups for member in group[1:]]
    if resolved.algorithm.averages_weights:
        key = f'algorithm.name = "{experiment.algorithm.name}"'
        pairs += [(i, j, key) for i, j in sorted(resolved.graph.edges())]
    for i, j, key in pairs:
        one, other = experiment.model.for_client(i), experiment.model.for_client(j)
        if one != other:
            raise ConfigurationError(
                f"{key}: the weights of client {i} ({_shown(one)}) and client {j} ({_shown(other)}) cannot be "
                "averaged; give them the same model" + ("" if key == "groups" else ', or use algorithm.name = "mhd"')
            )


def _shown(model: ModelConfig) -> str:
    return f"{model.backbone}, width {model.width}" + (f", weights {model.weights}" if model.weights else "")


def check_schedule(training: TrainingConfig) -> None:
    """Raise if the warmup is longer than the run."""
    if training.warmup_steps > training.steps:
        raise ConfigurationError(
            f"training.warmup_steps = {training.warmup_steps}: longer than training.steps = {training.steps}; "
            f"use fewer, such as {training.steps // 10}"
        )


def check_consistency(
    experiment: Experiment, algorithm: "Algorithm", graph: "CommunicationGraph", parts: "Split", dataset: "Dataset"
) -> None:
    """Raise if keys contradict each other or the data."""
    training, private = experiment.training, sum(len(own) for own in parts.private)
    if training.batch_size > private:
        raise ConfigurationError(
            f"training.batch_size = {training.batch_size}: larger than all {private} private samples; at most {private}"
        )
    check_schedule(training)
    if algorithm.needs_neighbours and graph.clients == 1:
        raise ConfigurationError(
            f"{'groups: one group only' if experiment.groups else 'clients = 1'}: algorithm.name = "
            f'"{experiment.algorithm.name}" needs at least 2 {"groups" if experiment.groups else "clients"}; '
            + ('leave groups out and use "averaging"' if experiment.groups else 'for one model alone use "separate"')
        )
    exchanges = algorithm.exchange_steps(training.steps)
    if algorithm.needs_neighbours and not exchanges:
        raise ConfigurationError(
            f"training.steps = {training.steps}: nothing is exchanged in so few; lower algorithm.pool_every"
        )
    alone = graph.without_neighbours(exchanges) if algorithm.needs_neighbours else []
    if alone:
        raise ConfigurationError(
            f'graph.name = "{experiment.graph.name}": {"group" if experiment.groups else "client"} {alone[0]} has '
            "nobody to learn from, which "
            f'algorithm.name = "{experiment.algorithm.name}" needs; give it an edge or use "separate"'
        )
    if algorithm.has_auxiliary_heads and experiment.model.auxiliary_heads < 1:
        raise ConfigurationError(
            f'model.auxiliary_heads = 0: algorithm.name = "{experiment.algorithm.name}" teaches auxiliary heads; '
            "give at least 1"
        )
    if algorithm.reads_public:
        _check_public(experiment, algorithm, parts, dataset)


def _check_public(experiment: Experiment, algorithm: "Algorithm", parts: "Split", dataset: "Dataset") -> None:
    """Raise if the public set is not what the algorithm needs."""
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
    if algorithm.measures_with_public_labels and dataset.public_set.labels is None:
        raise ConfigurationError(
            f'algorithm.select = "{experiment.algorithm.options().get("select")}": reads the labels of the public set, '
            'which has none; use another choice, such as select = "mixture"'
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

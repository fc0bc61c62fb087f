"""Resolving an experiment: load its data, fill in defaults, check everything; nothing is trained or written."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from manyheads import algorithms
from manyheads.algorithms.base import Algorithm
from manyheads.config.data import DataConfig, SourceConfig
from manyheads.config.experiment import Experiment
from manyheads.config.knobs import RunSize
from manyheads.data.arrays import Dataset
from manyheads.data.loading import load
from manyheads.data.split import default_per_client, public_samples, split
from manyheads.errors import ConfigurationError
from manyheads.graph import CommunicationGraph, with_defaults
from manyheads.imports import Trust
from manyheads.memory import enough_memory
from manyheads.setup.memory_limits import check_fits_memory
from manyheads.setup.models import try_models
from manyheads.setup.resolved import ResolvedExperiment
from manyheads.setup.validate import check_consistency, check_equal_models


def resolve(
    experiment: Experiment,
    *,
    pretrained: bool = False,
    loaded: ResolvedExperiment | None = None,
    to_train: bool = True,
    trust: Trust | None = None,
) -> ResolvedExperiment:
    """Load the data, fill in defaults and check everything; raise an error that says what is wrong.

    Args:
        experiment: what the user wrote, or what a run folder holds.
        pretrained: also check the files of `model.weights`.
        loaded: another experiment; if it reads the same data, they are not loaded again.
        to_train: false to look at the data only: what training would refuse becomes a note.
        trust: which code the experiment may import; needed if it came from a run folder and not from the user.
    """
    trust = trust or Trust.full()
    algorithm = algorithms.make_algorithm(experiment.algorithm, trust)
    labelled = algorithm.reads_public_labels
    _check_downloads(experiment.data, trust)
    if loaded is not None and _reads_the_same(loaded, experiment, labelled, trust):
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
    experiment = complete(experiment, dataset, trust)
    algorithm = algorithms.make_algorithm(experiment.algorithm, trust)
    groups = _groups(experiment, algorithm)
    graph = _graph(experiment, len(groups))
    parts = split(experiment.data, dataset, experiment.clients, experiment.seed)
    algorithm.check(experiment.training.steps, dataset.classes)
    problems: list[str] = []
    with _noted(problems, to_train):
        check_consistency(experiment, algorithm, graph, parts, dataset)
    models = try_models(experiment, dataset, algorithm, pretrained=pretrained, trust=trust)
    resolved = ResolvedExperiment(experiment, dataset, parts, groups, graph, algorithm, models, trust, tuple(problems))
    with _noted(problems, to_train):
        check_fits_memory(resolved)
    check_equal_models(resolved)
    return replace(resolved, problems=tuple(problems))


def _check_downloads(data: DataConfig, trust: Trust) -> None:
    for source in (data, data.public):
        if isinstance(source, SourceConfig) and source.download:
            what = " ".join(filter(None, (source.source, source.name, source.path)))
            trust.check_download(f"{source.section}.download", what)


@contextlib.contextmanager
def _noted(problems: list[str], to_train: bool) -> Iterator[None]:
    """Turn what only training would refuse into a note, if nothing is to be trained."""
    try:
        yield
    except ConfigurationError as error:
        if to_train:
            raise
        problems.append(f"training would be refused: {error}")


def _reads_the_same(loaded: ResolvedExperiment, experiment: Experiment, labelled_public: bool, trust: Trust) -> bool:
    """Return whether an experiment reads the data that were loaded for another."""
    same = complete(experiment, loaded.dataset, trust).data == loaded.experiment.data
    return same and labelled_public == loaded.algorithm.reads_public_labels


def complete(experiment: Experiment, dataset: Dataset, trust: Trust) -> Experiment:
    """Return the experiment with every default written out, as its run folder holds it."""
    classes = dataset.private_classes
    data: dict[str, Any] = {}
    if experiment.data.public is None:
        simulated = "none" if dataset.client_names else "fraction"  # clients that bring their own data keep all of it
        data["public"] = simulated if dataset.public is None else "own"
    if dataset.set_aside is not None:
        data["test_fraction"] = dataset.set_aside
    experiment = experiment.with_values(data=data)
    data = {"private_fraction": experiment.data.private_share}
    primary = experiment.data.primary_labels
    if primary.assignment == "random" and primary.per_client is None:
        data["primary_labels"] = {"assignment": "random", "per_client": default_per_client(classes)}
    training = experiment.training
    nodes, grouped = len(experiment.groups) or experiment.clients, bool(experiment.groups)
    passes = training.steps * training.public_batch_size / max(1, public_samples(experiment.data, dataset))
    views = experiment.data.public_views if experiment.algorithm.options().get("exchange") == "predictions" else None
    new_views = experiment.data.augment != "none" and views != 1
    size = RunSize(
        training.steps,
        nodes,
        dataset.classes,
        grouped=grouped,
        passes=passes,
        balanced=training.balance > 0.0,
        new_views=new_views,
        learning_rate=training.learning_rate,
    )
    algorithm = algorithms.with_defaults(experiment.algorithm, size, trust)
    graph = with_defaults(experiment.graph)
    return experiment.with_values(
        data=data,
        algorithm=algorithm.model_dump(),
        graph=graph.model_dump(),
        evaluate={"every": experiment.evaluate_every},
    )


def _groups(experiment: Experiment, algorithm: Algorithm) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of the graph: the groups, or each client by itself."""
    if not experiment.groups:
        return tuple((client,) for client in range(experiment.clients))
    if algorithm.group_every is None:
        raise ConfigurationError(
            f'groups: algorithm.name = "{experiment.algorithm.name}" has no groups, "mhd" does; leave them out'
        )
    listed = sorted(client for group in experiment.groups for client in group)
    if listed != list(range(experiment.clients)) or not all(experiment.groups):
        raise ConfigurationError(
            f"groups: each of the clients 0 to {experiment.clients - 1} must be in exactly one group, none empty"
        )
    if algorithm.teacher_confidence.fitted:
        name = experiment.algorithm.options()["confidence"]
        raise ConfigurationError(
            f'groups: algorithm.confidence = "{name}" measures what one client trained on; use "max_probability"'
        )
    return tuple(tuple(sorted(group)) for group in experiment.groups)


def _graph(experiment: Experiment, nodes: int) -> CommunicationGraph:
    try:
        with enough_memory(f"lower clients = {experiment.clients}, or use another graph.name", ConfigurationError):
            return CommunicationGraph(experiment.graph, nodes, experiment.seed)
    except ConfigurationError as error:
        text = str(error)
        raise ConfigurationError(text.replace("client", "group") if experiment.groups else text) from None

"""The events and the summary of a run, made from its ensemble and what was measured."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from manyheads.evaluation.accuracy import Evaluation
from manyheads.evaluation.head_choice import recommended_heads
from manyheads.evaluation.means import mean_by_head
from manyheads.evaluation.teacher_tally import TeacherTally
from manyheads.models.backbones import has_width
from manyheads.runs.events import EvaluationEvent, Event, ProbeEvent, StartEvent, TaughtCounts, TaughtEvent
from manyheads.runs.relations import Relations
from manyheads.runs.summary import Accuracies, ClientSummary, Deploy, Summary
from manyheads.setup.build import Ensemble
from manyheads.setup.notes import notes_of
from manyheads.version import __version__


@dataclass
class LatestEvents:
    """The last events of the kinds that a summary repeats."""

    test: EvaluationEvent | None = None
    after: dict[str, EvaluationEvent] = field(default_factory=dict)  # on the test set, by state of the algorithm
    taught: TaughtEvent | None = None
    probe: ProbeEvent | None = None

    def remember(self, event: Event) -> None:
        match event:
            case EvaluationEvent(part="test"):
                self.test = event
                if event.after is not None:
                    self.after[event.after] = event
            case TaughtEvent():
                self.taught = event
            case ProbeEvent():
                self.probe = event


def summarise(
    e: Ensemble,
    evaluations: Mapping[str, Evaluation],
    latest: LatestEvents,
    *,
    seconds: float,
    time: Mapping[str, float],
    how: Mapping[str, Any],
) -> Summary:
    """Sum up a finished run. `how` holds engine, device and precision; `time` says where the seconds went."""
    test, validation = evaluations["test"], evaluations.get("validation")
    means = _means(test)
    steps = e.resolved.experiment.training.steps
    return Summary(
        algorithm=e.resolved.experiment.algorithm.name,
        graph=_graph(e),
        groups=e.resolved.experiment.groups,
        seed=e.resolved.experiment.seed,
        version=__version__,
        torch=torch.__version__,
        **how,
        data=e.resolved.dataset.name,
        classes=list(e.resolved.dataset.class_names),
        image_shape=list(e.resolved.dataset.image_shape),
        steps=steps,
        seconds=round(seconds, 3),
        client_steps_per_second=round(steps * len(e.clients) / seconds, 1),
        private_accuracy=means.private_accuracy,
        private_with_prior=means.private_with_prior,
        shared_accuracy=means.shared_accuracy,
        validation=None if validation is None else _means(validation),
        deploy=_deploy(validation),
        collapsed=[list(found) for found in test.collapsed],
        by_hop=None if latest.test is None else latest.test.by_hop,
        after={state: _means(event) for state, event in latest.after.items()},
        taught=None if latest.taught is None else _counts(latest.taught),
        probe=None if latest.probe is None else latest.probe.shared_accuracy,
        exchange=e.resolved.experiment.algorithm.options().get("exchange"),
        bytes_received=[client.bytes_received for client in e.clients],
        bytes_received_total=sum(client.bytes_received for client in e.clients),
        clients=[_client(e, index, test, validation) for index in range(len(e.clients))],
        time={name: round(spent, 3) for name, spent in time.items()},
    )


def start_event(e: Ensemble, how: Mapping[str, Any]) -> StartEvent:
    """Make the first line of metrics.jsonl: who owns what, and what computes."""
    named = (e.resolved.experiment.algorithm.name, _graph(e), f"seed {e.resolved.experiment.seed}")
    return StartEvent(
        what=", ".join(filter(None, named)),
        exchanges=bool(e.resolved.exchange_steps),
        **how,
        label_counts=e.resolved.label_counts().tolist(),
        primary_labels=[list(labels) for labels in e.resolved.split.primary_labels],
        public_samples=len(e.resolved.split.public),
        validation_samples=len(e.resolved.split.validation),
        test_samples=len(e.resolved.dataset.test.used),
        class_names=list(e.resolved.dataset.class_names),
        client_names=[client.name for client in e.clients],
        notes=notes_of(e.resolved),
        parameters=[model.parameters for model in e.resolved.models],
        flops=[model.flops for model in e.resolved.models],
    )


def evaluation_event(
    evaluation: Evaluation, step: int, after: str | None, by_hop: dict[str, list[float]] | None
) -> EvaluationEvent:
    """Make an event of the accuracies of all clients on a part of the data."""
    return EvaluationEvent(
        step=step,
        part=evaluation.part,  # type: ignore[arg-type]  # checked there
        after=after or None,
        private_accuracy=evaluation.private_accuracy,
        private_with_prior=evaluation.private_with_prior,
        shared_accuracy=evaluation.shared_accuracy,
        by_hop=by_hop,
        collapsed=[list(found) for found in evaluation.collapsed],
    )


def taught_event(taught: TeacherTally, step: int) -> TaughtEvent:
    """Make an event of who taught, without whom."""
    named = [f.name for f in fields(taught) if f.name in TaughtEvent.model_fields]
    return TaughtEvent(step=step, **{name: _as_list(getattr(taught, name)) for name in named})


def relations_of(step: int, accuracy_on: list[list[list[float]]] | None, taught: TeacherTally | None) -> Relations:
    """Put together what was measured of pairs of clients."""
    chosen, right = (None, None) if taught is None else (_as_list(taught.chosen), _as_list(taught.right))
    return Relations(step=step, accuracy_on=accuracy_on, chosen=chosen, right=right)


def _as_list(counts: Any) -> Any:
    return None if counts is None else counts.tolist()


def _counts(event: TaughtEvent) -> TaughtCounts:
    """Return the counts of an event, without its time."""
    return TaughtCounts(**{name: event[name] for name in TaughtCounts.model_fields})


def _graph(e: Ensemble) -> str | None:
    return e.resolved.experiment.graph.name if e.resolved.algorithm.needs_neighbours else None


def _means(judged: Evaluation | EvaluationEvent) -> Accuracies:
    """Return the accuracies by head, as means over clients."""
    with_prior = judged.private_with_prior
    return Accuracies(
        private_accuracy=mean_by_head(judged.private_accuracy),
        private_with_prior=None if with_prior is None else mean_by_head(with_prior),
        shared_accuracy=mean_by_head(judged.shared_accuracy),
    )


def _deploy(validation: Evaluation | None, client: int | None = None) -> Deploy | None:
    chosen = recommended_heads(validation, client)
    return None if chosen is None else Deploy(**dataclasses.asdict(chosen))


def _client(e: Ensemble, index: int, test: Evaluation, validation: Evaluation | None) -> ClientSummary:
    client, model = e.clients[index], e.resolved.models[index]
    config = e.resolved.experiment.model.for_client(index)
    return ClientSummary(
        name=client.name,
        backbone=config.backbone,  # type: ignore[arg-type]  # of one client it is no list
        width=config.width if has_width(model.backbone) else None,  # type: ignore[arg-type]
        embedding_width=model.embedding_width,
        maps=e.resolved.foreign_widths(index),
        parameters=model.parameters,
        flops=model.flops,
        samples=len(client.private),
        primary_labels=list(client.primary_labels),
        **_of_client(test, index).model_dump(),
        validation=None if validation is None else _of_client(validation, index),
        bytes_received=client.bytes_received,
        refused=client.refused,
        deploy=_deploy(validation, index),
    )


def _of_client(judged: Evaluation, index: int) -> Accuracies:
    with_prior = judged.private_with_prior
    return Accuracies(
        private_accuracy=judged.private_accuracy[index],
        private_with_prior=None if with_prior is None else with_prior[index],
        shared_accuracy=judged.shared_accuracy[index],
    )

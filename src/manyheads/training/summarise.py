"""What is left of a run when it has ended: the contents of summary.json, and the first event of metrics.jsonl."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from manyheads.evaluation.accuracy import Evaluation
from manyheads.evaluation.deploy import deploy
from manyheads.evaluation.means import hop_means, mean_by_head
from manyheads.evaluation.taught import Taught
from manyheads.models.backbones import has_width
from manyheads.runs.events import Event
from manyheads.setup.build import Ensemble
from manyheads.setup.notes import notes_of
from manyheads.version import __version__


def summarise(
    e: Ensemble,
    evaluations: Mapping[str, Evaluation],
    last: Mapping[str, Event],
    *,
    seconds: float,
    how: Mapping[str, str],
) -> dict[str, Any]:
    """Accuracies are fractions; lists run over heads, and are means over clients unless they stand under `clients`.

    `last` holds the last event of each kind, `how` says what computed: engine, device, precision.
    """
    test, validation = evaluations["test"], evaluations.get("validation")
    steps = e.resolved.experiment.training.steps
    return {
        "algorithm": e.resolved.experiment.algorithm.name,
        "graph": _graph(e),
        "groups": e.resolved.experiment.groups,
        "seed": e.resolved.experiment.seed,
        "version": __version__,
        "torch": torch.__version__,
        **how,
        "data": e.resolved.dataset.name,
        "classes": list(e.resolved.dataset.class_names),
        "image_shape": list(e.resolved.dataset.image_shape),
        "steps": steps,
        "seconds": round(seconds, 3),
        "client_steps_per_second": round(steps * len(e.clients) / seconds, 1),
        "private_accuracy": mean_by_head(test.private_accuracy),
        "shared_accuracy": mean_by_head(test.shared_accuracy),
        "validation": _validation(validation),
        "deploy": deploy(validation),
        "collapsed": [list(found) for found in test.collapsed],
        "by_hop": hop_means(test.accuracy_on, e.resolved.hops(steps)),
        "accuracy_on": test.accuracy_on,
        "after": _judged_after(last),
        "taught": _without(last.get("taught"), "event", "seconds"),
        "probe": last["probe"]["shared_accuracy"] if "probe" in last else None,
        "exchange": e.resolved.experiment.algorithm.options().get("exchange"),
        "bytes_received": [client.bytes_received for client in e.clients],
        "bytes_received_total": sum(client.bytes_received for client in e.clients),
        "clients": [_client(e, index, test, validation) for index in range(len(e.clients))],
    }


def start_event(e: Ensemble, how: Mapping[str, str]) -> Event:
    """Who owns what, as the first line of metrics.jsonl."""
    return {
        "event": "start",
        "step": 0,
        "what": ", ".join(
            filter(None, (e.resolved.experiment.algorithm.name, _graph(e), f"seed {e.resolved.experiment.seed}"))
        ),
        "exchanges": bool(e.resolved.exchange_steps),
        **how,
        "label_counts": e.resolved.label_counts().tolist(),
        "primary_labels": [list(labels) for labels in e.resolved.split.primary_labels],
        "public_samples": len(e.resolved.split.public),
        "validation_samples": len(e.resolved.split.validation),
        "test_samples": len(e.resolved.dataset.test.used),
        "class_names": list(e.resolved.dataset.class_names),
        "client_names": [client.name for client in e.clients],
        "notes": notes_of(e.resolved),
        "parameters": [model.parameters for model in e.resolved.models],
        "flops": [model.flops for model in e.resolved.models],
    }


def evaluation_event(
    evaluation: Evaluation, step: int, after: str | None, hops: Sequence[Sequence[int | None]]
) -> Event:
    """Accuracies as clients x heads; on the test part also on every client's distribution, and by hop."""
    beyond = {"accuracy_on": evaluation.accuracy_on, "by_hop": hop_means(evaluation.accuracy_on, hops)}
    return {
        "event": "evaluation",
        "step": step,
        "part": evaluation.part,
        **({"after": after} if after else {}),
        "private_accuracy": evaluation.private_accuracy,
        "shared_accuracy": evaluation.shared_accuracy,
        **(beyond if evaluation.part == "test" else {}),
        "collapsed": [list(found) for found in evaluation.collapsed],
    }


def taught_event(taught: Taught, step: int) -> Event:
    """Counts: clients x auxiliary heads x teachers, and teachers x classes."""
    return {"event": "taught", "step": step, **_lists(taught)}


def _lists(taught: Taught) -> dict[str, Any]:
    counts = {f.name: getattr(taught, f.name) for f in fields(taught)}
    return {name: None if count is None else count.tolist() for name, count in counts.items()}


def _graph(e: Ensemble) -> str | None:
    return e.resolved.experiment.graph.name if e.resolved.algorithm.needs_neighbours else None


def _judged_after(last: Mapping[str, Event]) -> dict[str, dict[str, list[float]]]:
    """Where an algorithm is judged in several states: the test accuracies of each, as last seen."""
    return {
        event["after"]: {task: mean_by_head(event[task]) for task in ("private_accuracy", "shared_accuracy")}
        for event in last.values()
        if event.get("after") and event["part"] == "test"
    }


def _without(event: Event | None, *keys: str) -> Event | None:
    return None if event is None else {key: value for key, value in event.items() if key not in keys}


def _client(e: Ensemble, index: int, test: Evaluation, validation: Evaluation | None) -> dict[str, Any]:
    client = e.clients[index]
    return {
        "name": client.name,
        "backbone": e.resolved.experiment.model.of(index).backbone,
        "width": e.resolved.experiment.model.of(index).width if has_width(e.resolved.models[index].backbone) else None,
        "embedding_width": e.resolved.embedding_widths[index],
        "maps": e.resolved.foreign_widths(index),
        "parameters": e.resolved.models[index].parameters,
        "flops": e.resolved.models[index].flops,
        "samples": len(client.private),
        "primary_labels": list(client.primary_labels),
        "private_accuracy": test.private_accuracy[index],
        "shared_accuracy": test.shared_accuracy[index],
        "validation": None
        if validation is None
        else {
            "private_accuracy": validation.private_accuracy[index],
            "shared_accuracy": validation.shared_accuracy[index],
        },
        "bytes_received": client.bytes_received,
        "deploy": deploy(validation, index),
    }


def _validation(validation: Evaluation | None) -> dict[str, Any] | None:
    if validation is None:
        return None
    return {
        "private_accuracy": mean_by_head(validation.private_accuracy),
        "shared_accuracy": mean_by_head(validation.shared_accuracy),
    }

"""What is left of a run when it has ended: the contents of summary.json, and the first event of metrics.jsonl."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import mean
from typing import Any

import torch

from manyheads.ensemble import Ensemble
from manyheads.evaluate import Evaluation, Taught, best_head, head_for_private_task, hop_means, mean_by_head
from manyheads.models.backbones import has_width
from manyheads.runs import Event
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
    steps = e.experiment.training.steps
    return {
        "algorithm": e.experiment.algorithm.name,
        "graph": _graph(e),
        "groups": e.experiment.groups,
        "seed": e.experiment.seed,
        "version": __version__,
        "torch": torch.__version__,
        **how,
        "data": e.dataset.name,
        "classes": list(e.dataset.class_names),
        "image_shape": list(e.dataset.image_shape),
        "steps": steps,
        "seconds": round(seconds, 3),
        "client_steps_per_second": round(steps * len(e.clients) / seconds, 1),
        "private_accuracy": mean_by_head(test.private_accuracy),
        "shared_accuracy": mean_by_head(test.shared_accuracy),
        "validation": _validation(validation),
        "deploy": deploy(validation),
        "collapsed": [list(found) for found in test.collapsed],
        "by_hop": hop_means(test.accuracy_on, e.hops(steps)),
        "accuracy_on": test.accuracy_on,
        "after": _judged_after(last),
        "taught": _without(last.get("taught"), "event", "seconds"),
        "probe": last["probe"]["shared_accuracy"] if "probe" in last else None,
        "exchange": e.experiment.algorithm.options().get("exchange"),
        "bytes_received": [client.bytes_received for client in e.clients],
        "bytes_received_total": sum(client.bytes_received for client in e.clients),
        "clients": [_client(e, index, test, validation) for index in range(len(e.clients))],
    }


def start_event(e: Ensemble, how: Mapping[str, str]) -> Event:
    """Who owns what, as the first line of metrics.jsonl."""
    return {
        "event": "start",
        "step": 0,
        "what": ", ".join(filter(None, (e.experiment.algorithm.name, _graph(e), f"seed {e.experiment.seed}"))),
        "exchanges": bool(e.exchange_steps),
        **how,
        "label_counts": e.label_counts().tolist(),
        "primary_labels": [list(labels) for labels in e.split.primary_labels],
        "public_samples": len(e.split.public),
        "validation_samples": len(e.split.validation),
        "test_samples": len(e.dataset.test.used),
        "class_names": list(e.dataset.class_names),
        "client_names": [client.name for client in e.clients],
        "notes": e.notes,
        "parameters": [model.parameters for model in e.models],
        "flops": [model.flops for model in e.models],
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
    return e.experiment.graph.name if e.algorithm.needs_neighbours else None


def _judged_after(last: Mapping[str, Event]) -> dict[str, dict[str, list[float]]]:
    """Where an algorithm is judged in several states: the test accuracies of each, as last seen."""
    return {
        event["after"]: {task: mean_by_head(event[task]) for task in ("private_accuracy", "shared_accuracy")}
        for event in last.values()
        if event.get("after") and event["part"] == "test"
    }


def _without(event: Event | None, *keys: str) -> Event | None:
    return None if event is None else {key: value for key, value in event.items() if key not in keys}


def deploy(validation: Evaluation | None, client: int | None = None) -> dict[str, int] | None:
    """Which head to use for the private and for the shared task: chosen on validation data, never on test data."""
    if validation is None:
        return None
    judged = slice(None) if client is None else slice(client, client + 1)  # all clients, or one
    private, shared = validation.private_accuracy[judged], validation.shared_accuracy[judged]
    samples = mean(validation.private_samples[judged])
    return {"private": head_for_private_task(mean_by_head(private), samples), "shared": best_head(mean_by_head(shared))}


def _client(e: Ensemble, index: int, test: Evaluation, validation: Evaluation | None) -> dict[str, Any]:
    client = e.clients[index]
    return {
        "name": client.name,
        "backbone": e.experiment.model.of(index).backbone,
        "width": e.experiment.model.of(index).width if has_width(e.models[index].backbone) else None,
        "embedding_width": e.embedding_widths[index],
        "maps": e.foreign_widths(index),
        "parameters": e.models[index].parameters,
        "flops": e.models[index].flops,
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

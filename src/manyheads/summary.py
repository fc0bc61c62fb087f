"""What is left of a run when it has ended: the contents of summary.json, and the first event of metrics.jsonl."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

import torch

from manyheads.ensemble import Ensemble
from manyheads.evaluate import Evaluation, best_head, head_for_private_task, mean_by_head
from manyheads.runs import Event


def summarise(
    e: Ensemble, evaluations: Mapping[str, Evaluation], *, seconds: float, engine: str, version: str
) -> dict[str, Any]:
    """Accuracies are fractions; lists run over heads, and are means over clients unless they stand under `clients`."""
    test, validation = evaluations["test"], evaluations.get("validation")
    steps = e.experiment.training.steps
    return {
        "algorithm": e.experiment.algorithm.name,
        "seed": e.experiment.seed,
        "version": version,
        "torch": torch.__version__,
        "engine": engine,
        "device": str(e.clients[0].state.values.device),
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
        "bytes_received": [client.bytes_received for client in e.clients],
        "clients": [_client(e, index, test, validation) for index in range(len(e.clients))],
    }


def start_event(e: Ensemble, *, engine: str) -> Event:
    """Who owns what, as the first line of metrics.jsonl."""
    return {
        "event": "start",
        "step": 0,
        "engine": engine,
        "device": str(e.clients[0].state.values.device),
        "label_counts": e.label_counts().tolist(),
        "primary_labels": [list(labels) for labels in e.split.primary_labels],
        "public_samples": len(e.split.public),
        "validation_samples": len(e.split.validation),
        "test_samples": len(e.dataset.test_labels),
        "class_names": list(e.dataset.class_names),
    }


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
        "backbone": e.experiment.model.backbone,
        "parameters": sum(p.numel() for p in client.model.parameters()),
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

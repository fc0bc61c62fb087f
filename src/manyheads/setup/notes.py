"""Notes for the user before training: about the files, and about settings that are seldom intended."""

import math

import numpy as np

from manyheads.evaluation.accuracy import effective_samples
from manyheads.setup.resolved import ResolvedExperiment

FEW_SAMPLES = 10  # on fewer, the choice of a head is mostly chance


def notes_of(resolved: ResolvedExperiment) -> list[str]:
    """Return the notes before training: about files, duplicate images and odd settings."""
    return [
        *resolved.problems,
        *resolved.dataset.notes,
        *_duplicates(resolved),
        *_odd_settings(resolved),
        *_little_validation(resolved),
    ]


def _odd_settings(resolved: ResolvedExperiment) -> list[str]:
    """Return notes on settings that are allowed but seldom intended."""
    data, found = resolved.experiment.data, []
    if resolved.algorithm.needs_neighbours and resolved.exchange_steps == {0}:
        found.append("clients exchange nothing but their initial weights: training.steps ends before another exchange")
    idle = [f"algorithm.{key}" for key in resolved.algorithm.idle_keys(resolved.dataset.classes)]
    predicted = resolved.algorithm.table_contents(resolved.heads, resolved.dataset.classes) is not None
    if data.public_views > 1 and not predicted:
        idle.append("data.public_views")
    if idle:
        found.append(f"without effect, because no predictions are exchanged: {', '.join(idle)}")
    if data.public_views > 1 and predicted and data.augment == "none":
        found.append('without effect, because data.augment = "none" has one view: data.public_views')
    if any(resolved.split.primary_labels) and (without := sum(not labels for labels in resolved.split.primary_labels)):
        key = "clients_per_label" if data.primary_labels.assignment == "even" else "per_client"
        found.append(
            f"{without} of {resolved.experiment.clients} clients have no primary label: use fewer clients, or raise "
            f"data.primary_labels.{key}"
        )
    if resolved.experiment.model.heads_see == "feature_map" and resolved.experiment.evaluate.probe:
        found.append("the probe sees embeddings only; heads that see feature maps may do better than it")
    nobodys = set(range(resolved.dataset.private_classes)).difference(*resolved.split.primary_labels)
    if math.isinf(data.skew) and any(resolved.split.primary_labels) and nobodys:
        names = ", ".join(resolved.dataset.class_names[label] for label in sorted(nobodys)[:5])
        found.append(
            f"{len(nobodys)} label(s) are nobody's primary label and go evenly to all: {names}; "
            'data.primary_labels.assignment = "even" leaves none out'
        )
    return found


def _little_validation(resolved: ResolvedExperiment) -> list[str]:
    """Return a note if clients choose their heads on very few validation samples of their own task."""
    validation, train = resolved.split.validation, resolved.dataset.train
    if len(validation) == 0:
        return []
    by_kind = np.bincount(resolved.kinds(train)[validation], minlength=resolved.number_of_kinds)
    clients = range(resolved.experiment.clients)
    samples = [effective_samples(resolved.kind_weights(client), by_kind) for client in clients]
    few = [client for client in clients if samples[client] < FEW_SAMPLES]
    if not few:
        return []
    least = min(few, key=lambda client: samples[client])
    return [
        f"{len(few)} of {len(samples)} clients choose their heads on fewer than {FEW_SAMPLES} validation samples of "
        f"their own task ({resolved.client_name(least)}: {math.floor(samples[least])}); raise "
        f"data.validation_fraction = {resolved.experiment.data.validation_fraction:g}"
    ]


def _duplicates(resolved: ResolvedExperiment) -> list[str]:
    """Return a note for each two parts of the data that should have no image in common but do."""
    data, private = resolved.dataset, np.concatenate(resolved.split.private)
    test, owned = data.test.names[data.test.used], data.train.names[private]
    public = data.public_set.names[resolved.split.public]
    twice, count = np.unique(
        np.concatenate([np.unique(data.train.names[own]) for own in resolved.split.private]), return_counts=True
    )
    found = [
        (np.isin(test, owned).sum(), f"of {len(test)} test images are private training images too"),
        (np.isin(test, public).sum(), f"of {len(test)} test images are public images too"),
        ((count > 1).sum(), f"of {len(twice)} different private images belong to two or more clients"),
    ]
    if resolved.experiment.data.public != "all":
        found.append((np.isin(public, owned).sum(), f"of {len(public)} public images are a client's private ones too"))
    return [f"{number} {text} (the same pixels)" for number, text in found if number]

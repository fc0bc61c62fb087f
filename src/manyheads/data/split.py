"""The split: who owns which sample, by the paper's public and private parts, primary labels and skewness.

Everything here depends on labels and positions only; no pixel is read.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.config.data import DataConfig, PrimaryLabels
from manyheads.data.arrays import Dataset, Indices, Labels
from manyheads.errors import ConfigurationError
from manyheads.seeds import generator


@dataclass(frozen=True)
class Split:
    """Indices into the training samples; no sample is private to two clients."""

    public: Indices  # into the public set, if that comes from elsewhere
    validation: Indices
    private: tuple[Indices, ...]
    primary_labels: tuple[tuple[int, ...], ...]

    def label_counts(self, labels: Labels, classes: int) -> NDArray[np.int64]:
        """Return the number of private samples of each label that each client has: clients x classes."""
        return np.stack([np.bincount(labels[own], minlength=classes) for own in self.private])


def split(config: DataConfig, dataset: Dataset, clients: int, seed: int) -> Split:
    """Divide the training samples as `[data]` says, or as they came."""
    train, classes = dataset.train, dataset.private_classes
    public, validation, private = _parts(config, dataset, seed)
    labels = train.known_labels[private]
    primary: tuple[tuple[int, ...], ...] = tuple(() for _ in range(clients))
    if train.owners is not None:
        owner = train.owners[private]
    elif config.partition == "skew":
        primary = primary_labels(config.primary_labels, classes, clients, seed)
        owner = _owners_by_skew(labels, primary, config.skew, classes, clients, seed)
    elif config.partition == "dirichlet":
        owner = _owners_by_dirichlet(labels, config.alpha, classes, clients, seed)
    else:
        owner = _owners_by_fine_class(labels, train.fine, private, clients, seed)
    own = [np.sort(private[owner == client]) for client in range(clients)]
    if config.samples_per_class is not None:
        own = [
            _fewer(indices, train.known_labels, config.samples_per_class, generator(seed, "fewer samples", client))
            for client, indices in enumerate(own)
        ]
    for client, indices in enumerate(own):
        if len(indices) == 0:
            raise ConfigurationError(_left_without_samples(config, dataset, client, len(private), clients))
    elsewhere = dataset.public is not None
    return Split(dataset.public_set.used if elsewhere else np.sort(public), np.sort(validation), tuple(own), primary)


def public_samples(config: DataConfig, dataset: Dataset) -> int:
    """Return how many public samples there will be; rounding may make it one more or less for each client."""
    if dataset.public is not None:
        return len(dataset.public_set.used)
    share = 1.0 - config.validation_fraction if config.public == "all" else config.public_fraction
    return round(share * len(dataset.train.used))


def primary_labels(config: PrimaryLabels, classes: int, clients: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Return the primary labels of each client (the paper's `random` and `even` assignments)."""
    if config.assignment == "random":
        size = config.per_client if config.per_client is not None else default_per_client(classes)
        if size > classes:
            raise ConfigurationError(
                f"data.primary_labels.per_client = {size}: there are only {classes} labels; at most {classes}"
            )
        drawn = [
            generator(seed, "primary labels", client).choice(classes, size=size, replace=False)
            for client in range(clients)
        ]
        return tuple(tuple(sorted(labels.tolist())) for labels in drawn)
    shares = config.clients_per_label or 2
    if shares > clients:
        raise ConfigurationError(
            f"data.primary_labels.clients_per_label = {shares}: there are only {clients} clients; at most {clients}"
        )
    # Each label goes to the clients with the fewest so far, drawn among equals: numbers stay equal, and sets differ.
    rng = generator(seed, "primary labels")
    hands: list[list[int]] = [[] for _ in range(clients)]
    for label in range(classes):
        order = rng.permutation(clients).tolist()
        for client in sorted(order, key=lambda client: len(hands[client]))[:shares]:
            hands[client].append(label)
    return tuple(tuple(sorted(hand)) for hand in hands)


def default_per_client(classes: int) -> int:
    """Return a quarter of the labels, as in the paper's 250 of 1000."""
    return max(1, round(classes / 4))


def assignment_probabilities(
    primary: tuple[tuple[int, ...], ...], skew: float, classes: int, clients: int
) -> NDArray[np.float64]:
    """Return the probability that a sample goes to a client: 1 + skew times higher if its label is primary there.

    Classes x clients. With skew = inf a label goes to its primary clients only, or evenly to all if it has none.

    >>> assignment_probabilities(primary=((0,), (1,)), skew=3.0, classes=3, clients=2).tolist()
    [[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]]
    """
    is_primary = np.zeros((classes, clients))
    for client, own in enumerate(primary):
        is_primary[list(own), client] = 1.0
    if math.isinf(skew):
        weight = np.where(is_primary.any(axis=1, keepdims=True), is_primary, 1.0)
    else:
        weight = 1.0 + skew * is_primary
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _parts(config: DataConfig, dataset: Dataset, seed: int) -> tuple[Indices, Indices, Indices]:
    """Return public, validation and private samples: of all training samples, or of each client that brought some."""
    owners, used = dataset.train.owners, dataset.train.used
    if owners is None:
        return _cut(config, used, generator(seed, "parts"))
    cuts = []
    for client, name in enumerate(dataset.client_names):
        try:
            cuts.append(_cut(config, used[owners[used] == client], generator(seed, "parts", client)))
        except ConfigurationError as error:
            raise ConfigurationError(f"client {name}: {error}") from None
    public, validation, private = (np.concatenate(parts) for parts in zip(*cuts, strict=True))
    return public, validation, private


def _cut(config: DataConfig, used: Indices, rng: np.random.Generator) -> tuple[Indices, Indices, Indices]:
    """Return public, validation and private samples.

    Of all samples in a shuffled order, private ones are taken from the end and public ones from the start, so
    that the private part stays as it is while the public one grows.
    """
    samples = len(used)
    order = used[rng.permutation(samples)]
    private_size = round(config.private_share * samples)
    if private_size == 0:
        advice = "raise it"
        if config.private_fraction is None:  # it is what the others leave
            advice = "lower data.public_fraction or data.validation_fraction"
        raise ConfigurationError(
            f"data.private_fraction = {config.private_share:g}: no private samples are left of {samples}; {advice}"
        )
    first_private = samples - private_size
    # Rounding may claim one sample twice; the validation part, then the public one, gives way.
    validation_size = min(round(config.validation_fraction * samples), first_private)
    if config.validation_fraction > 0 and validation_size == 0:
        raise ConfigurationError(
            f"data.validation_fraction = {config.validation_fraction:g}: no validation samples are left of "
            f"{samples}; raise it or give 0"
        )
    private = order[first_private:]
    validation = order[first_private - validation_size : first_private]
    if config.public == "all":
        public = np.concatenate([order[: first_private - validation_size], private])
    elif config.public in (None, "fraction"):
        public = order[: min(round(config.public_fraction * samples), first_private - validation_size)]
    else:  # it comes from elsewhere
        return order[:0], validation, private
    if len(public) == 0 and config.public_fraction > 0:
        raise ConfigurationError(
            f"data.public_fraction = {config.public_fraction:g}: no public samples are left of {samples}; raise it"
        )
    return public, validation, private


def _owners_by_skew(
    labels: Labels, primary: tuple[tuple[int, ...], ...], skew: float, classes: int, clients: int, seed: int
) -> Indices:
    chances = assignment_probabilities(primary, skew, classes, clients)
    edges = chances.cumsum(axis=1)[labels]
    uniform = generator(seed, "owners").random(len(labels))
    # Rounding may leave the last edge a hair below 1.
    owner: Indices = np.minimum((uniform[:, None] >= edges).sum(axis=1), clients - 1).astype(np.int64)
    return owner


def _owners_by_dirichlet(labels: Labels, alpha: float, classes: int, clients: int, seed: int) -> Indices:
    """Divide each label in proportions drawn from Dirichlet(alpha), as in Yurochkin et al. 2019."""
    rng = generator(seed, "owners")
    owner = np.zeros(len(labels), dtype=np.int64)
    for label in range(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.rint(shares.cumsum()[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            owner[part] = client
    return owner


def _owners_by_fine_class(labels: Labels, fine: Labels | None, private: Indices, clients: int, seed: int) -> Indices:
    """Give client i one finer class of each label, number i modulo their count; equals share it evenly."""
    if fine is None:
        raise ConfigurationError(
            'data.partition = "fine": no finer classes are known; name them with data.fine_label (npz, huggingface)'
        )
    rng, finer = generator(seed, "owners"), fine[private]
    owner = np.full(len(labels), -1)
    for label in np.unique(labels):
        kinds = np.unique(finer[labels == label])
        for number, kind in enumerate(kinds):
            members = rng.permutation(np.flatnonzero((labels == label) & (finer == kind)))
            holders = [client for client in range(clients) if client % len(kinds) == number]
            for holder, part in zip(holders, np.array_split(members, max(1, len(holders))), strict=False):
                owner[part] = holder
    return owner


def _fewer(indices: Indices, labels: Labels, most: int, rng: np.random.Generator) -> Indices:
    """Draw at most so many of each label."""
    if len(indices) == 0:
        return indices
    drawn = rng.permutation(indices)
    return np.sort(np.concatenate([drawn[labels[drawn] == label][:most] for label in np.unique(labels[drawn])]))


def _left_without_samples(config: DataConfig, dataset: Dataset, client: int, samples: int, clients: int) -> str:
    if dataset.client_names:
        return f"data.private_fraction: client {dataset.client_names[client]} is left without private samples; raise it"
    if config.partition == "fine":
        return f"clients = {clients}: client {client} is left without samples; use fewer clients"
    if config.partition == "dirichlet":
        return f"data.alpha = {config.alpha:g}: client {client} is left without samples; raise it or change the seed"
    return (
        f"data.skew = {config.skew:g}: client {client} of {clients} is left without any of the {samples} private "
        "samples; lower the skew, give it more primary labels, or use fewer clients"
    )

"""The split: who owns which sample."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads import ConfigurationError
from manyheads.config.data import DataConfig, PrimaryLabels
from manyheads.data.arrays import Dataset, ImageSet
from manyheads.data.split import assignment_probabilities, primary_labels, split


def dataset_of(samples: int, classes: int) -> Dataset:
    """Return a data set with equally many samples of each class."""
    part = ImageSet(np.zeros((samples, 1, 1, 1), dtype=np.uint8), np.arange(samples) % classes)
    return Dataset("even", part, part, tuple(map(str, range(classes))))


@settings(max_examples=80)
@given(
    seed=st.integers(0, 1_000),
    clients=st.integers(1, 6),
    public=st.floats(0.05, 0.4),
    validation=st.sampled_from([0.0, 0.1, 0.2]),
    skew=st.sampled_from([0.0, 1.0, 100.0, math.inf]),
    assignment=st.sampled_from(["random", "even"]),
    partition=st.sampled_from(["skew", "dirichlet"]),
    everything=st.booleans(),
)
def test_every_split_is_a_partition(
    seed: int,
    clients: int,
    public: float,
    validation: float,
    skew: float,
    assignment: str,
    partition: str,
    everything: bool,
) -> None:
    dataset = dataset_of(600, 10)
    primary = {"clients_per_label": 1} if assignment == "even" else {"per_client": 3}
    config = DataConfig.model_validate(
        {
            "source": "digits",
            "public": "all" if everything else "fraction",
            "public_fraction": public,
            "validation_fraction": validation,
            "partition": partition,
            "skew": skew,
            "alpha": 5.0,
            "primary_labels": {"assignment": assignment, **primary},
        }
    )
    try:
        made = split(config, dataset, clients, seed)
    except ConfigurationError as error:
        assert "left without" in str(error)  # noqa: PT017
        return
    private = np.concatenate(made.private)
    assert len(set(private.tolist())) == len(private), "a sample is private to two clients"
    assert not set(made.validation.tolist()) & (set(private.tolist()) | set(made.public.tolist()))
    assert len(made.validation) == round(validation * 600)
    if everything:
        assert len(made.public) == 600 - len(made.validation)
        assert set(private.tolist()) <= set(made.public.tolist())
    else:
        assert not set(made.public.tolist()) & set(private.tolist())
        assert abs(len(made.public) - public * 600) <= 1
        assert len(made.public) + len(made.validation) + len(private) == pytest.approx(600, abs=1)


def test_the_same_seed_splits_the_same_and_another_does_not() -> None:
    config, dataset = DataConfig(source="digits"), dataset_of(1_000, 10)
    one, again, other = (split(config, dataset, 4, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.private, again.private, strict=True))
    assert not np.array_equal(one.public, other.public)


def test_private_samples_stay_while_the_public_part_grows() -> None:
    dataset = dataset_of(1_000, 10)
    made = [
        split(DataConfig(source="digits", public_fraction=share, private_fraction=0.7), dataset, 4, 0)
        for share in (0.1, 0.2, 0.3)
    ]
    for other in made[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(made[0].private, other.private, strict=True))
    assert [len(s.public) for s in made] == [100, 200, 300]
    assert set(made[0].public.tolist()) < set(made[1].public.tolist()) < set(made[2].public.tolist())


@pytest.mark.parametrize("skew", [0.0, 1.0, 100.0])
def test_a_primary_label_is_1_plus_s_times_as_likely(skew: float) -> None:
    """Owners are counted over many samples, not read off the table of probabilities."""
    dataset = dataset_of(200_000, 2)
    config = DataConfig(
        source="digits",
        public_fraction=0.1,
        skew=skew,
        primary_labels=PrimaryLabels(assignment="even", clients_per_label=1),
    )
    made = split(config, dataset, 3, seed=1)
    counts = made.label_counts(dataset.train.known_labels, 2)
    for label in (0, 1):
        owner = next(client for client in range(3) if label in made.primary_labels[client])
        others = [counts[client, label] for client in range(3) if client != owner]
        assert counts[owner, label] / np.mean(others) == pytest.approx(1 + skew, rel=0.08)


def test_infinite_skew_gives_a_label_to_its_primary_clients_only() -> None:
    dataset = dataset_of(10_000, 20)
    made = split(
        DataConfig(source="digits", skew=math.inf, primary_labels=PrimaryLabels(per_client=5)), dataset, 4, seed=0
    )
    counts = made.label_counts(dataset.train.known_labels, 20)
    owners = [[client for client in range(4) if label in made.primary_labels[client]] for label in range(20)]
    assert any(not own for own in owners)
    assert any(own for own in owners)
    for label, own in enumerate(owners):
        having = np.flatnonzero(counts[:, label]).tolist()
        assert having == (own or [0, 1, 2, 3])


@given(clients=st.integers(1, 9), classes=st.integers(1, 40), share=st.integers(1, 9), seed=st.integers(0, 50))
def test_even_gives_each_label_exactly_m_clients_and_equal_hands(
    clients: int, classes: int, share: int, seed: int
) -> None:
    if share > clients:
        return
    made = primary_labels(PrimaryLabels(assignment="even", clients_per_label=share), classes, clients, seed)
    assert [sum(label in own for own in made) for label in range(classes)] == [share] * classes
    sizes = [len(own) for own in made]
    assert max(sizes) - min(sizes) <= 1


def test_even_makes_no_twins() -> None:
    made = primary_labels(PrimaryLabels(assignment="even", clients_per_label=2), 100, 8, seed=0)
    assert len(set(made)) == 8
    shared = [len(set(a) & set(b)) for a, b in itertools.combinations(made, 2)]
    assert max(shared) < 12  # of 25


def test_tiny_sets_are_rounded_without_overlap() -> None:
    config = DataConfig(source="digits", public_fraction=0.0, validation_fraction=0.5, skew=0.0)
    for samples in range(4, 12):
        made = split(config, dataset_of(samples, 2), 1, seed=0)
        assert len(made.public) == 0
        assert len(made.validation) > 0
        assert not set(made.validation.tolist()) & set(made.private[0].tolist())


def test_dirichlet_is_skewed_for_small_alpha_and_even_for_large() -> None:
    dataset = dataset_of(20_000, 10)

    def unevenness(alpha: float) -> float:
        made = split(DataConfig(source="digits", partition="dirichlet", alpha=alpha), dataset, 5, seed=0)
        counts = made.label_counts(dataset.train.known_labels, 10)
        return float((counts.max(0) / counts.sum(0)).mean())

    assert unevenness(0.1) > 0.6
    assert unevenness(1_000.0) < 0.25


def test_chances_sum_to_one() -> None:
    for skew in (0.0, 100.0, math.inf):
        chances = assignment_probabilities(((0, 1), (1,), ()), skew, 3, 3)
        assert chances.sum(1) == pytest.approx(np.ones(3))


@pytest.mark.parametrize(
    ("values", "clients", "message"),
    [
        ({"primary_labels": {"per_client": 11}}, 4, "data.primary_labels.per_client = 11: there are only 10 labels"),
        ({"primary_labels": {"assignment": "even", "clients_per_label": 5}}, 4, "clients_per_label = 5"),
        ({"public_fraction": 1e-6}, 4, "data.public_fraction = 1e-06: no public samples"),
        ({"private_fraction": 0.0}, 4, "data.private_fraction = 0: no private samples"),
        ({"public_fraction": 1.0, "validation_fraction": 0.0}, 4, "lower data.public_fraction or data.validation"),
        ({"validation_fraction": 1e-6}, 4, "data.validation_fraction"),
        ({"private_fraction": 0.004, "public_fraction": 0.1}, 50, "is left without any of the 4 private samples"),
        ({"partition": "dirichlet", "alpha": 1e-3}, 30, "data.alpha = 0.001: client"),
    ],
)
def test_impossible_splits_say_what_to_change(values: dict[str, object], clients: int, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        split(DataConfig.model_validate({"source": "digits", **values}), dataset_of(1_000, 10), clients, seed=0)
    assert message in str(error.value)

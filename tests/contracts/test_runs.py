"""The contract of every entry: a seed repeats, a resumed run equals an uninterrupted one, two clients are enough."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from manyheads import ConfigurationError, Experiment, resume, train
from manyheads.algorithms import ALGORITHMS
from manyheads.errors import Interrupted
from manyheads.graph import GRAPHS, Phases
from manyheads.runs.events import Event
from manyheads.runs.read import read_events
from manyheads.runs.stored import Stored
from manyheads.setup.build import assemble
from manyheads.setup.resolve import resolve
from manyheads.training.observer import SilentObserver
from manyheads.training.result import Result
from tests.contracts import ALGORITHM_KNOBS, CASES, GRAPH_KNOBS, experiment, stored_labels, train_by_hand, weights
from tests.runs.conftest import StopAt

TIMES = ("seconds", "client_steps_per_second", "time")


class Listener(SilentObserver):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def happened(self, event: Event) -> None:
        self.events.append(event)


@dataclasses.dataclass(frozen=True)
class Ended:
    """Return all of a run that must not depend on when it was stopped."""

    weights: list[bytes]
    summary: dict[str, Any]
    events: list[dict[str, Any]]

    @classmethod
    def of(cls, result: Result, events: list[Event]) -> "Ended":
        return cls(
            [client.state.values.numpy().tobytes() for client in result.clients],
            without_times(result.summary),
            [without_times(event) for event in events],
        )


def without_times(record: Stored) -> dict[str, Any]:
    return record.model_dump(exclude=set(TIMES))


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    """Run a case's tests one after the other, so that what they share is made once."""
    return str(request.param)


@pytest.fixture(scope="module")
def uninterrupted(case: str) -> Ended:
    listener = Listener()
    return Ended.of(train(experiment(case), observer=listener), listener.events)


def test_every_algorithm_and_graph_has_knobs() -> None:
    assert set(ALGORITHM_KNOBS) == set(ALGORITHMS)
    assert set(GRAPH_KNOBS) == {*GRAPHS, "phases"}


def test_a_seed_repeats_exactly_and_another_does_not(case: str, uninterrupted: Ended) -> None:
    again, other = (assemble(experiment(case, seed=seed)) for seed in (0, 1))
    for ensemble in (again, other):
        train_by_hand(ensemble)
    assert weights(again) == uninterrupted.weights
    assert all(mine != theirs for mine, theirs in zip(weights(again), weights(other), strict=True))


def test_stopped_and_resumed_equals_uninterrupted(case: str, uninterrupted: Ended, tmp_path: Path) -> None:
    """Stopped twice, in the middle of windows: between two exchanges or right after one."""
    folder = tmp_path / "run"
    with pytest.raises(Interrupted) as first:
        train(experiment(case), folder, observer=StopAt(21))
    with pytest.raises(Interrupted) as second:
        resume(folder, observer=StopAt(13))
    assert 0 < first.value.step < second.value.step < 12
    resumed = Ended.of(resume(folder), read_events(folder))
    assert resumed.weights == uninterrupted.weights
    assert resumed.summary == uninterrupted.summary
    assert resumed.events == uninterrupted.events


@pytest.mark.parametrize("algorithm", ALGORITHM_KNOBS)
def test_two_clients_are_enough(algorithm: str) -> None:
    summary = train(experiment(algorithm, clients=2)).summary
    receives = [amount > 0 for amount in summary["bytes_received"]]
    assert receives == [ALGORITHMS[algorithm].needs_neighbours] * 2


@pytest.mark.parametrize("graph", GRAPH_KNOBS)
def test_every_graph_connects_two_clients(graph: str) -> None:
    fitting: dict[str, dict[str, Any]] = {"random_regular": {"degree": 1}, "edges": {"edges": [[0, 1], [1, 0]]}}
    knobs = {"name": graph, **GRAPH_KNOBS[graph], **fitting.get(graph, {})}
    ensemble = assemble(experiment("mhd", clients=2, graph=knobs))
    train_by_hand(ensemble)
    assert [{entry.client for entry in client.pool.entries} for client in ensemble.clients] == [{1}, {0}]


@pytest.mark.parametrize("algorithm", ALGORITHM_KNOBS)
def test_one_client_trains_alone_or_is_told_why_not(algorithm: str) -> None:
    alone = experiment(algorithm, clients=1)
    if ALGORITHMS[algorithm].needs_neighbours:
        with pytest.raises(
            ConfigurationError, match=r'^clients = 1: .* needs at least 2 clients; .*"separate"'
        ) as error:
            train(alone)
        assert "\n" not in str(error.value)
    else:
        assert train(alone).summary["bytes_received"] == [0]


@pytest.mark.parametrize("algorithm", ALGORITHM_KNOBS)
def test_labels_of_the_public_set_are_not_read_in_training(algorithm: str) -> None:
    """Only an algorithm whose public set is labelled may read its labels."""
    usual, without = (assemble(experiment(algorithm)) for _ in range(2))
    for client in without.clients:
        for samples in (client.private, client.public):
            if samples is not None:
                stored_labels(samples)[without.resolved.split.public] = 10**9
    train_by_hand(usual)
    train_by_hand(without)
    assert weights(usual) == weights(without)


def knobs_of(section: str) -> list[tuple[str, str, str]]:
    kinds: dict[str, Any] = ALGORITHMS if section == "algorithm" else {**GRAPHS, "phases": Phases}
    return [(section, name, field.name) for name, kind in kinds.items() for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("value", ["nonsense", -1])
@pytest.mark.parametrize(("section", "name", "key"), knobs_of("algorithm") + knobs_of("graph"))
def test_nonsense_is_refused_by_the_name_of_its_key(
    tiny: Experiment, section: str, name: str, key: str, value: object
) -> None:
    known = ALGORITHM_KNOBS if section == "algorithm" else GRAPH_KNOBS
    with pytest.raises(ConfigurationError, match=rf"^{section}\.{key} = (\"nonsense\"|-1): ") as error:
        resolve(tiny.with_values(clients=4, **{section: {"name": name, **known[name], key: value}}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("section", "name"), [("algorithm", name) for name in ALGORITHM_KNOBS] + [("graph", name) for name in GRAPH_KNOBS]
)
def test_an_unknown_knob_is_refused_by_its_name(tiny: Experiment, section: str, name: str) -> None:
    known = ALGORITHM_KNOBS if section == "algorithm" else GRAPH_KNOBS
    with pytest.raises(ConfigurationError, match=rf"^{section}\.colour: unknown key; "):
        resolve(tiny.with_values(clients=4, **{section: {"name": name, **known[name], "colour": 1}}))


@pytest.mark.parametrize("key", ["algorithm.name", "algorithm.confidence", "algorithm.exchange", "graph.name"])
def test_an_unknown_entry_is_refused_by_the_name_of_its_key(tiny: Experiment, key: str) -> None:
    section, _, knob = key.partition(".")
    with pytest.raises(ConfigurationError, match=rf'^{key} = "nonsense": '):
        resolve(tiny.with_values(**{section: {knob: "nonsense"}}))

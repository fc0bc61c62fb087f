"""Exchanges follow the edges of the graph, and nothing else crosses.

One client's private pixels are changed. Exactly those clients may change whom this can have reached: one edge further
at each exchange. All pools have one entry, so that the last snapshot received is the one that teaches.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from manyheads import Experiment
from manyheads.algorithms import ALGORITHMS
from manyheads.algorithms.base import Algorithm, Neighbours
from manyheads.client.client import Client
from manyheads.exchange.snapshot import Snapshot
from manyheads.setup.build import Ensemble, assemble
from tests.contracts import ALGORITHM_KNOBS, GRAPH_KNOBS, NONE, SNAPSHOTS, stored_images, train_by_hand, weights

POOL = {"pool_size": 1, "pool_every": 2, "pool_start": "empty", "ramp": NONE, "pull_ramp": NONE}
EXCHANGES: dict[str, dict[str, Any]] = {
    **{f"mhd {kind}": {"name": "mhd", **POOL, "exchange": kind} for kind in SNAPSHOTS},
    "averaging": {"name": "averaging", "average_every": 2},
    "fedmd": {"name": "fedmd", "first_private_steps": 2, "digest_steps": 2, "revisit_steps": 1},
}
ReceivedFrom = dict[tuple[int, int], set[int]]  # by client and step: whose snapshots it received


def test_every_algorithm_that_exchanges_is_here() -> None:
    exchanging = {
        name for name, knobs in ALGORITHM_KNOBS.items() if len(ALGORITHMS[name](**knobs).exchange_steps(1_000))
    }
    assert {knobs["name"] for knobs in EXCHANGES.values()} == exchanging


@pytest.fixture
def received_from(monkeypatch: pytest.MonkeyPatch) -> ReceivedFrom:
    """Return the clients from which each client really received something."""
    found: ReceivedFrom = {}
    for kind in {ALGORITHMS[knobs["name"]] for knobs in EXCHANGES.values()}:

        def listening(
            self: Algorithm, client: Client, neighbours: Neighbours, step: int, collect: Any = kind.collect
        ) -> list[Snapshot]:
            received: list[Snapshot] = collect(self, client, neighbours, step)
            found[client.index, step] = {snapshot.client for snapshot in received} - {client.index}
            return received

        monkeypatch.setattr(kind, "collect", listening)
    return found


def small(tiny: Experiment, exchanges: str, graph: Mapping[str, Any]) -> Experiment:
    """Return an experiment of three exchanges after first private steps, and a few steps after the last one."""
    training: dict[str, Any] = {"steps": 8, "warmup_steps": 0}
    if exchanges == "fedmd":
        # The gradient of an L1 distance shows a small difference only where it turns a sign: it needs many, and soon.
        training |= {"steps": 11, "public_batch_size": 200, "learning_rate": 0.5}
    return tiny.with_values(
        clients=4,
        algorithm=EXCHANGES[exchanges],
        graph=graph,
        model={"width": 2, "auxiliary_heads": 1},
        training=training,
    )


def histories(experiment: Experiment, source: int | None) -> tuple[Ensemble, list[list[bytes]]]:
    """Return all weights before each exchange and at the end; `source` trains on the negatives of its images."""
    ensemble = assemble(experiment)
    if source is not None:
        images = stored_images(ensemble.clients[source].private)
        own = torch.from_numpy(ensemble.resolved.split.private[source])
        images[own] = 255 - images[own]
    seen: list[list[bytes]] = []
    train_by_hand(ensemble, before_exchange=lambda step: seen.append(weights(ensemble)))
    return ensemble, seen


def changes(experiment: Experiment, source: int, usual: list[list[bytes]]) -> list[set[int]]:
    """Return, before each exchange, the clients whose weights differ from those without the change."""
    _, changed = histories(experiment, source)
    return [
        {client for client, (a, b) in enumerate(zip(one, other, strict=True)) if a != b}
        for one, other in zip(usual, changed, strict=True)
    ]


@pytest.mark.parametrize("graph", GRAPH_KNOBS)
@pytest.mark.parametrize("exchanges", EXCHANGES)
def test_what_a_client_is_travels_along_edges_only(
    tiny: Experiment, received_from: ReceivedFrom, exchanges: str, graph: str
) -> None:
    experiment = small(tiny, exchanges, {"name": graph, **GRAPH_KNOBS[graph]})
    ensemble, usual = histories(experiment, None)
    steps = sorted(step for step in ensemble.resolved.exchange_steps if step < experiment.training.steps)
    assert len(steps) == 3
    for client, step in itertools.product(range(4), steps):
        assert received_from[client, step]
        assert received_from[client, step] <= set(ensemble.resolved.graph.neighbours(client, step))
    source = 3
    reached, expected = {source}, [{source}]
    for step in steps:
        reached = reached | {client for client in range(4) if received_from[client, step] & reached}
        expected.append(reached)
    found = changes(experiment, source, usual)
    assert found == expected
    for number, changed in enumerate(found):
        away = ensemble.resolved.graph.hops(steps[number - 1] if number else 0)
        distances = {client: away[client][source] for client in changed}
        assert all(distance is not None and distance <= number for distance in distances.values())


REACHED = {  # by graph and source: whom it has reached after 0, 1, 2 and 3 exchanges
    "islands": {
        0: [{0}, {0, 1}, {0, 1}, {0, 1}],
        2: [{2}, {2, 3}, {2, 3}, {2, 3}],
    },
    "edges": {  # 0 learns from 1, 1 from 2, 2 and 3 from each other
        0: [{0}, {0}, {0}, {0}],
        1: [{1}, {0, 1}, {0, 1}, {0, 1}],
        3: [{3}, {2, 3}, {1, 2, 3}, {0, 1, 2, 3}],
    },
}


@pytest.mark.parametrize("graph", REACHED)
@pytest.mark.parametrize("exchanges", EXCHANGES)
def test_reach_and_no_further(tiny: Experiment, exchanges: str, graph: str) -> None:
    """With one neighbour each, news goes as many hops as there are exchanges, and never across islands."""
    experiment = small(tiny, exchanges, {"name": graph, **GRAPH_KNOBS[graph]})
    ensemble, usual = histories(experiment, None)
    hops = ensemble.resolved.graph.hops(step=8)
    for source, expected in REACHED[graph].items():
        within = [
            {client for client in range(4) if (away := hops[client][source]) is not None and away <= number}
            for number in range(len(expected))
        ]
        assert changes(experiment, source, usual) == expected == within


@pytest.mark.parametrize("exchanges", EXCHANGES)
def test_a_client_cannot_ask_one_that_is_not_its_neighbour(tiny: Experiment, exchanges: str) -> None:
    ensemble = assemble(small(tiny, exchanges, {"name": "cycle"}))
    asked: list[int] = []

    def ask(client: int | None, *_: Any) -> Snapshot:
        asked.extend([] if client is None else [client])
        return ensemble.clients[client or 0].snapshot(2)

    neighbours = Neighbours(ensemble.resolved.graph.neighbours(0, 2), ask)
    ensemble.resolved.algorithm.collect(ensemble.clients[0], neighbours, 2)
    assert asked == [1]
    with pytest.raises(KeyError):
        neighbours[2]
    assert asked == [1]

"""Communication graphs: who learns from whom."""

from typing import Any

import networkx
import pytest

from manyheads import ConfigurationError
from manyheads.config.experiment import GraphConfig
from manyheads.graph import GRAPHS, CommunicationGraph

OPTIONS: dict[str, dict[str, object]] = {"edges": {"edges": [[i, (i + 2) % 8] for i in range(8)]}}


def graph(name: str, clients: int = 8, seed: int = 0, **options: Any) -> CommunicationGraph:
    return CommunicationGraph(GraphConfig(name=name, **options), clients, seed)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_names_existing_others_in_order(name: str) -> None:
    """This is the contract of every entry of GRAPHS."""
    made = graph(name, **({"degree": 3} if name == "random_regular" else OPTIONS.get(name, {})))
    for client in range(8):
        neighbours = made.neighbours(client, step=0)
        assert list(neighbours) == sorted(set(neighbours))
        assert set(neighbours) <= set(range(8)) - {client}
        assert neighbours, f"client {client} learns from nobody"
        assert neighbours == made.neighbours(client, step=10_000)
    assert made.without_neighbours([0]) == []


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("complete", {}, [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]),
        ("cycle", {}, [(1,), (2,), (3,), (0,)]),
        ("islands", {"size": 2}, [(1,), (0,), (3,), (2,)]),
        ("chain", {}, [(1,), (0, 2), (1, 3), (2,)]),
        ("star", {}, [(1, 2, 3), (0,), (0,), (0,)]),
        ("edges", {"edges": [[0, 3], [0, 1], [0, 3], [2, 0]]}, [(1, 3), (), (0,), ()]),
    ],
)
def test_direction(name: str, options: dict[str, Any], expected: list[tuple[int, ...]]) -> None:
    made = graph(name, clients=4, **options)
    assert [made.neighbours(client, 0) for client in range(4)] == expected


def test_random_regular_has_its_degree_both_ways_and_follows_the_seed() -> None:
    made = graph("random_regular", degree=3)
    assert all(len(made.neighbours(i, 0)) == 3 for i in range(8))
    assert all(i in made.neighbours(j, 0) for i in range(8) for j in made.neighbours(i, 0))
    others = [graph("random_regular", seed=seed, degree=3) for seed in range(5)]
    assert len({tuple(g.neighbours(i, 0) for i in range(8)) for g in others}) > 1


def test_a_cycle_reaches_everyone_hop_by_hop() -> None:
    made = graph("cycle")
    edges = networkx.DiGraph([(i, j) for i in range(8) for j in made.neighbours(i, 0)])
    assert networkx.shortest_path_length(edges, 0, 3) == 3
    assert networkx.shortest_path_length(edges, 3, 0) == 5


def test_phases_change_with_time() -> None:
    made = graph(
        "phases",
        clients=4,
        phases=[{"steps": 10, "name": "islands", "size": 2}, {"steps": 5, "name": "cycle"}, {"name": "star"}],
    )
    assert [made.neighbours(1, step) for step in (0, 9, 10, 14, 15, 999)] == [(0,), (0,), (2,), (2,), (0,), (0,)]


def test_clients_without_neighbours_are_named() -> None:
    assert graph("edges", clients=3, edges=[[0, 1], [2, 0]]).without_neighbours([0, 5]) == [1]
    later = graph(
        "phases", clients=3, phases=[{"steps": 5, "name": "edges", "edges": [[0, 1], [2, 0]]}, {"name": "cycle"}]
    )
    assert later.without_neighbours([0, 4]) == [1]
    assert later.without_neighbours([0, 4, 8]) == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cicle", {}, 'graph.name = "cicle": unknown graph; did you mean "cycle"?'),
        ("islands", {"size": 1}, "graph.size = 1"),
        ("islands", {"sizes": 2}, 'graph.sizes: unknown key; did you mean "size"?'),
        ("complete", {"size": 2}, "graph.size: unknown key"),
        ("edges", {}, "graph.edges: missing"),
        ("edges", {"edges": [[0, 9]]}, "graph.edges: client 9 does not exist (clients = 8: 0 to 7)"),
        ("edges", {"edges": [[-1, 2]]}, "graph.edges: client -1 does not exist"),
        ("edges", {"edges": [[1, 1]]}, "connects a client with itself"),
        ("edges", {"edges": [[1, 2, 3]]}, "is not an edge"),
        ("edges", {"edges": [["a", 2]]}, "graph.edges.0.0"),
        ("random_regular", {"degree": 8}, "graph.degree = 8"),
        ("random_regular", {"degree": 0}, "graph.degree = 0"),
        ("phases", {"phases": []}, "graph.phases"),
        ("phases", {"phases": [{"name": "cycle"}, {"name": "star"}]}, "graph.phases.0.steps"),
        ("phases", {"phases": [{"name": "cycle", "steps": 5}]}, "graph.phases.0.steps = 5: the last phase stays"),
        ("phases", {"phases": [{"steps": True, "name": "cycle"}, {"name": "star"}]}, "graph.phases.0.steps = True"),
        ("phases", {"phases": [{"name": "phases"}]}, 'graph.phases.0.name = "phases": unknown graph; known: '),
        ("phases", {"phases": [{"name": "islands", "size": 1}]}, "graph.phases.0.size = 1"),
        ("phases", {"phases": [{"name": "random_regular", "degree": 9}]}, "graph.phases.0.degree = 9"),
    ],
)
def test_bad_graphs_say_what_to_change(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        graph(name, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_each_phase_draws_its_own_random_graph() -> None:
    phase = {"name": "random_regular", "degree": 3}
    made = graph("phases", phases=[{"steps": 10, **phase}, phase])
    assert [made.neighbours(i, 0) for i in range(8)] != [made.neighbours(i, 10) for i in range(8)]

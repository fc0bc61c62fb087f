"""Communication graphs: who learns from whom, at every step.

An edge [i, j] says: i learns from j. Knowledge therefore flows against the edge, from j to i.
Each kind of graph is a frozen dataclass whose fields are the keys of `[graph]` beside `name`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from manyheads.config.experiment import GraphConfig
from manyheads.config.messages import build_section, nearest
from manyheads.config.types import CHECKED
from manyheads.errors import ConfigurationError
from manyheads.memory import check_memory
from manyheads.seeds import generator

LearnsFrom = tuple[tuple[int, ...], ...]  # for each client, the ones it learns from


class GraphKind(Protocol):
    """A kind of graph: its fields are keys, its method makes the edges for a number of clients."""

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        """Return for each client the ones it learns from, in ascending order."""


@dataclass(frozen=True, config=CHECKED)
class Complete:
    """A graph in which every client learns from every other one.

    >>> Complete().learns_from(3, np.random.default_rng(0))
    ((1, 2), (0, 2), (0, 1))
    """

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        check_memory(8 * clients**2, f"the edges of a complete graph of {clients:,}")
        return tuple(tuple(j for j in range(clients) if j != i) for i in range(clients))


@dataclass(frozen=True, config=CHECKED)
class Cycle:
    """A directed cycle: i learns from i + 1 only, the last client from the first. Client i + h is h hops away.

    >>> Cycle().learns_from(3, np.random.default_rng(0))
    ((1,), (2,), (0,))
    """

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        return tuple(((i + 1) % clients,) if clients > 1 else () for i in range(clients))


@dataclass(frozen=True, config=CHECKED)
class Islands:
    """Blocks of `size` consecutive clients: complete inside a block, no edges between blocks.

    >>> Islands(size=2).learns_from(4, np.random.default_rng(0))
    ((1,), (0,), (3,), (2,))
    """

    size: int = Field(default=2, ge=2)

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        return tuple(
            tuple(j for j in range(clients) if j != i and j // self.size == i // self.size) for i in range(clients)
        )


@dataclass(frozen=True, config=CHECKED)
class Chain:
    """A line with edges both ways: i learns from i - 1 and i + 1; the two ends have one neighbour.

    >>> Chain().learns_from(3, np.random.default_rng(0))
    ((1,), (0, 2), (1,))
    """

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        return tuple(tuple(j for j in (i - 1, i + 1) if 0 <= j < clients) for i in range(clients))


@dataclass(frozen=True, config=CHECKED)
class Star:
    """Edges both ways between client 0 and each other client, and no others.

    >>> Star().learns_from(3, np.random.default_rng(0))
    ((1, 2), (0,), (0,))
    """

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        return tuple(tuple(range(1, clients)) if i == 0 else (0,) for i in range(clients))


@dataclass(frozen=True, config=CHECKED)
class RandomRegular:
    """A random graph with edges both ways in which each client has `degree` neighbours.

    >>> RandomRegular(degree=2).learns_from(3, np.random.default_rng(0))
    ((1, 2), (0, 2), (0, 1))
    """

    degree: int = Field(default=3, ge=1)

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        if self.degree >= clients or self.degree * clients % 2:
            raise ConfigurationError(
                f"graph.degree = {self.degree}: no such graph on {clients} clients; "
                f"degree must be below {clients} and degree x clients even"
            )
        import networkx

        graph = networkx.random_regular_graph(self.degree, clients, seed=int(rng.integers(2**31)))
        return tuple(tuple(sorted(graph.neighbors(i))) for i in range(clients))


@dataclass(frozen=True, config=CHECKED)
class Edges:
    """Explicit directed edges: [i, j] says that i learns from j.

    >>> Edges(edges=[[0, 1], [2, 1]]).learns_from(3, np.random.default_rng(0))
    ((1,), (), (1,))
    """

    edges: list[list[int]]

    def learns_from(self, clients: int, rng: np.random.Generator) -> LearnsFrom:
        learns_from: list[set[int]] = [set() for _ in range(clients)]
        for edge in self.edges:
            if len(edge) != 2:
                raise ConfigurationError(f"graph.edges: {edge} is not an edge; write [i, j] for: i learns from j")
            for client in edge:
                if not 0 <= client < clients:
                    raise ConfigurationError(
                        f"graph.edges: client {client} does not exist (clients = {clients}: 0 to {clients - 1})"
                    )
            if edge[0] == edge[1]:
                raise ConfigurationError(f"graph.edges: {edge} connects a client with itself; leave it out")
            learns_from[edge[0]].add(edge[1])
        return tuple(tuple(sorted(neighbours)) for neighbours in learns_from)


@dataclass(frozen=True, config=CHECKED)
class Phases:
    """A graph that changes with time: each phase is a `[graph]` of its own and lasts `steps`; the last one stays.

    phases = [{ steps = 1000, name = "islands", size = 2 }, { name = "cycle" }]
    """

    phases: list[dict[str, Any]] = Field(min_length=1)


GRAPHS: dict[str, type[GraphKind]] = {
    "complete": Complete,
    "cycle": Cycle,
    "islands": Islands,
    "chain": Chain,
    "star": Star,
    "random_regular": RandomRegular,
    "edges": Edges,
}


class CommunicationGraph:
    """The graph of who learns from whom at every step: fixed, or one phase after another.

    >>> graph = CommunicationGraph(GraphConfig(name="cycle"), clients=4, seed=0)
    >>> graph.neighbours(3, step=0), graph.hops(step=0)[0]
    ((0,), [0, 1, 2, 3])
    """

    def __init__(self, config: GraphConfig, clients: int, seed: int) -> None:
        self.clients = clients
        self._phases = [(phase.start, phase.learns_from(clients, seed)) for phase in _parse(config)]

    @property
    def changes(self) -> bool:
        """True if it has several phases."""
        return len(self._phases) > 1

    def edges(self) -> set[tuple[int, int]]:
        """Return every (i, j) such that i learns from j at some time."""
        return {(i, j) for _, learns_from in self._phases for i, others in enumerate(learns_from) for j in others}

    def hops(self, step: int) -> list[list[int | None]]:
        """Return [i][j]: over how many edges of the graphs up to `step` knowledge of j reaches i; None: not at all."""
        import networkx

        edges = networkx.DiGraph()
        edges.add_nodes_from(range(self.clients))
        for start, learns_from in self._phases:
            if start <= step:
                edges.add_edges_from((i, j) for i, others in enumerate(learns_from) for j in others)
        away = dict(networkx.all_pairs_shortest_path_length(edges))
        return [[away[i].get(j) for j in range(self.clients)] for i in range(self.clients)]

    def neighbours(self, client: int, step: int) -> tuple[int, ...]:
        """Return the clients that `client` learns from at `step`."""
        current = [learns_from for start, learns_from in self._phases if start <= step][-1]
        return current[client]

    def without_neighbours(self, steps: Iterable[int]) -> list[int]:
        """Return the clients that have nobody to learn from at any of these steps."""
        alone = set(range(self.clients))
        for step in steps:
            alone -= {client for client in alone if self.neighbours(client, step)}
            if not alone:
                break
        return sorted(alone)


def with_defaults(config: GraphConfig) -> GraphConfig:
    """Return `[graph]` with every key that its kind has."""
    phases = _parse(config)
    if config.name == "phases":
        return GraphConfig(name="phases", phases=[phase.keys() for phase in phases])  # type: ignore[call-arg]
    return GraphConfig(**phases[0].keys())


@dataclasses.dataclass(frozen=True)
class _Phase:
    """One graph of a run from step `start` on; a fixed graph is a single phase."""

    number: int
    start: int
    steps: int | None  # None: to the end
    name: str
    kind: GraphKind
    section: str

    def learns_from(self, clients: int, seed: int) -> LearnsFrom:
        try:
            return self.kind.learns_from(clients, generator(seed, "graph", step=self.number))
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("graph.", f"{self.section}.", 1)) from None

    def keys(self) -> dict[str, Any]:
        lasts = {} if self.steps is None else {"steps": self.steps}
        return {**lasts, "name": self.name, **dataclasses.asdict(self.kind)}  # type: ignore[call-overload]


def _parse(config: GraphConfig) -> list[_Phase]:
    if config.name != "phases":
        return [_Phase(0, 0, None, config.name, _kind(config.name, config.options(), "graph"), "graph")]
    parsed, start, listed = [], 0, build_section(Phases, config.options(), "graph").phases
    for number, phase in enumerate(listed):
        options, section = dict(phase), f"graph.phases.{number}"
        name, steps = options.pop("name", None), options.pop("steps", None)
        last = number == len(listed) - 1
        if last and steps is not None:
            raise ConfigurationError(f"{section}.steps = {steps!r}: the last phase stays to the end; leave steps out")
        if not last and (type(steps) is not int or steps < 1):
            raise ConfigurationError(f"{section}.steps = {steps!r}: each phase but the last lasts 1 or more steps")
        parsed.append(_Phase(number, start, steps, str(name), _kind(str(name), options, section), section))
        start += steps or 0
    return parsed


def _kind(name: str, options: Mapping[str, Any], section: str) -> GraphKind:
    if name not in GRAPHS:
        allowed = GRAPHS if section != "graph" else [*GRAPHS, "phases"]
        hint = {"ring": 'that is "cycle"', "line": 'that is "chain"'}.get(name.lower()) or nearest(name, allowed)
        raise ConfigurationError(f'{section}.name = "{name}": unknown graph; {hint}')
    return build_section(GRAPHS[name], options, section)

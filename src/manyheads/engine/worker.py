"""A worker: some clients of an ensemble in one process, and all that an engine asks of them."""

import os
import tempfile
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from manyheads.algorithms.averaging import mean_values
from manyheads.algorithms.base import Algorithm, Neighbours
from manyheads.client.client import Client
from manyheads.client.state import ClientState, Snapshots, restore_client, restored_snapshot, states_of
from manyheads.engine.base import Progress, Window, WindowLosses
from manyheads.evaluation.accuracy import Scores, score
from manyheads.evaluation.taught import Taught, who_taught_whom
from manyheads.exchange.snapshot import Snapshot
from manyheads.setup.build import Ensemble


class Trainer(Protocol):
    """A way to run a window in one process."""

    notes: list[str]  # what a person should know and was not told yet

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        """Let each client take its steps of the window, alone."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Stands for the snapshot of a node until that is there: `collect` passes on what it asked for, unseen."""

    node: int
    client: int
    step: int

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"collect looks at a snapshot's {name}: it may only pass on what neighbours[j] gives")


class Worker:
    """Whole nodes of the graph: the members of a group always live together."""

    def __init__(self, ensemble: Ensemble, trainer: Trainer) -> None:
        self._e, self._trainer = ensemble, trainer
        by_index = {client.index: client for client in ensemble.clients}
        groups = {node: group for node, group in enumerate(ensemble.resolved.groups) if group[0] in by_index}
        self._nodes = {node: [by_index[member] for member in group] for node, group in groups.items()}
        self._received: dict[int, list[Snapshot | Asked]] = {}
        self._shown: dict[int, Snapshot] = {}

    def train(self, window: Window, trace: bool, progress: Progress) -> WindowLosses:
        clients, algorithm = self._e.clients, self._e.resolved.algorithm
        if not trace:
            return self._trainer.train(clients, algorithm, window, progress)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write to the terminal
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            with torch.profiler.profile(acc_events=True) as watched:
                found = self._trainer.train(clients, algorithm, window, progress)
            watched.export_chrome_trace(file.name)
            return replace(found, trace=Path(file.name).read_bytes())

    def collect(self, step: int) -> list[int]:
        """The first part of an exchange, all that clients do alone: groups average, nodes decide whom they ask.

        A group meets the others as one, in the person of its first member.
        """
        self._received, self._shown = {}, {}
        if step in self._e.resolved.averaging_steps:
            for members in self._nodes.values():
                average_group(members, step)
        if step not in self._e.resolved.exchange_steps:
            return []
        algorithm = self._e.resolved.algorithm

        def ask(node: int) -> Any:
            return Asked(node, self._e.resolved.groups[node][0], step)

        for client in self._e.clients:
            algorithm.prepare(client, step)
        for node, members in self._nodes.items():
            neighbours = Neighbours(self._e.resolved.graph.neighbours(node, step), ask)
            self._received[node] = list(algorithm.collect(members[0], neighbours, step))
        return sorted({got.node for own in self._received.values() for got in own if isinstance(got, Asked)})

    def show(self, nodes: Sequence[int], travels: Sequence[int], step: int) -> dict[int, Any]:
        """The second part: what some nodes show, once, however many pools take it; some of it to other workers."""
        self._shown = {node: self._e.resolved.algorithm.show(self._nodes[node][0], step) for node in nodes}
        return {node: self.send(self._shown[node]) for node in travels}

    def send(self, snapshot: Snapshot) -> Any:
        """In the form in which it travels to other workers: within one process, as it is."""
        return snapshot

    def receive(self, sent: Any) -> Snapshot:
        """The reverse of `send`, in another worker."""
        snapshot: Snapshot = sent
        return snapshot

    def apply(self, came: Mapping[int, Any], step: int) -> None:
        """The third part: take in what was shown, here and by other workers. Each snapshot becomes one object here."""
        algorithm = self._e.resolved.algorithm
        shown = self._shown | {node: self.receive(sent) for node, sent in came.items()}
        for node, own in self._received.items():
            client = self._nodes[node][0]
            received = [shown[got.node] if isinstance(got, Asked) else got for got in own]
            client.bytes_received += algorithm.cost(client, received)
            algorithm.apply(client, received, step)
        self._received, self._shown = {}, {}

    def scores(self, part: int) -> list[Scores]:
        return [score(client.model, self._e.parts[part]) for client in self._e.clients]

    def taught(self, start: int, stop: int) -> Taught | None:
        return who_taught_whom(self._e.clients, self._e.resolved.algorithm, start, stop)

    def probes(self) -> list[float]:
        return self._e.probes()

    def states(self, known: Container[str], pools: bool) -> tuple[list[ClientState], Snapshots]:
        return states_of(self._e.clients, known, pools=pools)

    def restore(self, states: Mapping[int, ClientState], snapshots: Snapshots, step: int) -> None:
        entries = {name: restored_snapshot(name, own, self._e.origins) for name, own in snapshots.items()}
        for client in self._e.clients:
            restore_client(client, states[client.index], "the last save")
            client.pool.entries = [entries[name] for name in states[client.index].pool]
        for members in self._nodes.values():
            self._e.resolved.algorithm.resumed(members[0], step)


def average_group(members: Sequence[Client], step: int) -> None:
    """Equal models become their mean; each receives one."""
    if len(members) == 1:
        return
    shown = [member.snapshot(step) for member in members]
    mean = mean_values(shown)
    for member, snapshot in zip(members, shown, strict=True):
        member.state.take_mean(mean)
        member.bytes_received += snapshot.nbytes

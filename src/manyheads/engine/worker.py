"""A worker: some clients of an ensemble in one process, and everything that an engine asks of them."""

import os
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from manyheads.algorithms.averaging import mean_values
from manyheads.algorithms.base import Algorithm, Neighbours
from manyheads.client.client import Client
from manyheads.client.own_statistics import own_statistics
from manyheads.client.state import (
    ClientState,
    LiveState,
    Snapshots,
    live_state,
    restore_client,
    restored_snapshot,
    states_of,
)
from manyheads.engine.base import Progress, Window, WindowLosses
from manyheads.errors import START_AGAIN, RunError, SnapshotError
from manyheads.evaluation.accuracy import Scores, score_client
from manyheads.evaluation.teacher_tally import TeacherTally, who_taught_whom
from manyheads.exchange.promises import CheckedAnswers, Promise, RequestCollector
from manyheads.exchange.request import Request, RequestKey
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer, InMemoryTransport, Transport
from manyheads.setup.build import Ensemble


class Trainer(Protocol):
    """A way to run a window in one process."""

    notes: list[str]  # for the user, since they were last read
    encodes: bool  # rows are answered as messages; otherwise they stay on the device, with the same bits

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        """Let each client take its steps of the window, alone."""


class Worker:
    """A worker, which holds whole nodes of the graph: the members of a group always live together."""

    def __init__(self, ensemble: Ensemble, trainer: Trainer) -> None:
        self._e, self._trainer = ensemble, trainer
        by_index = {client.index: client for client in ensemble.clients}
        groups = {node: group for node, group in enumerate(ensemble.resolved.groups) if group[0] in by_index}
        self._nodes = {node: [by_index[member] for member in group] for node, group in groups.items()}
        self._asked: dict[int, list[Snapshot | Promise]] = {}  # by node, from `collect`
        self._answers: dict[RequestKey, Answer | SnapshotError] = {}  # from clients here
        self._transport: Transport = InMemoryTransport()
        for client in ensemble.clients:
            self._transport.serve(client.index, partial(client.owner.answer, encode=trainer.encodes))
        self._edge: tuple[int, list[LiveState]] | None = None  # a step, and the clients before it
        self._noted_refusals: set[tuple[int, int]] = set()  # pairs of asker and owner

    def train(self, window: Window, trace: bool, keep: bool, progress: Progress) -> WindowLosses:
        """Let clients take their steps; with `keep`, `edge` can return their states before these steps at any time."""
        clients, algorithm = self._e.clients, self._e.resolved.algorithm
        self._edge = None  # before the next copies are made
        if keep:
            self._edge = window.start, [live_state(client, copied=True) for client in clients]
        if not trace:
            return self._trainer.train(clients, algorithm, window, progress)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would write to the terminal
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            with torch.profiler.profile(acc_events=True) as watched:
                found = self._trainer.train(clients, algorithm, window, progress)
            watched.export_chrome_trace(file.name)
            return replace(found, trace=Path(file.name).read_bytes())

    def collect(self, step: int) -> list[Request] | None:
        """Do the first part of an exchange, in which clients are alone: groups average, nodes decide whom to ask.

        A group meets others as one: its first member asks and answers. None: no exchange is due at this step.
        """
        resolved = self._e.resolved
        if step in resolved.averaging_steps:
            for members in self._nodes.values():
                average_group(members, step)
        if step not in resolved.exchange_steps:
            return None
        for client in self._e.clients:
            resolved.algorithm.prepare(client, step)
            client.owner.begin_exchange(step)
        return self._requests(resolved.algorithm.collect, step)

    def ask_again(self, step: int) -> list[Request]:
        """Ask again for what pools need but a save does not hold."""
        return self._requests(self._e.resolved.algorithm.ask_again, step)

    def _requests(self, collect: Callable[[Client, Neighbours, int], list[Snapshot]], step: int) -> list[Request]:
        """Return the requests of the nodes, and remember which answers they wait for."""
        resolved, made = self._e.resolved, list[Request]()
        self._asked, self._answers = {}, {}
        for node, members in self._nodes.items():
            client = members[0]
            collector = RequestCollector(client.index, lambda other: resolved.groups[other][0], step)
            neighbours = Neighbours(resolved.graph.neighbours(node, step), collector.ask)
            self._asked[node] = list(collect(client, neighbours, step))
            made += collector.requests(client.owners_keeping)
            client.owners_keeping = collector.owners_keeping
        return made

    def answer(self, requests: Sequence[Request], travels: Container[RequestKey]) -> dict[RequestKey, Any]:
        """Do the second part: answer the requests to clients here; return what travels to other workers."""
        for request in requests:
            try:
                self._answers[request.key] = self._transport.ask(request)
            except SnapshotError as error:
                self._answers[request.key] = error
        for client in self._e.clients:
            client.owner.end_exchange()
        return {key: self.send(answer) for key, answer in self._answers.items() if key in travels}

    def send(self, answer: Answer | SnapshotError) -> Any:
        """Return an answer in the form in which it travels to other workers; within one process it stays as it is."""
        return answer

    def receive(self, sent: Any) -> Answer | SnapshotError:
        """Undo `send`, in another worker."""
        answer: Answer | SnapshotError = sent
        return answer

    def apply(self, came: Mapping[RequestKey, Any], step: int) -> list[str]:
        """Do the third part: take in the answers; return notes about those that were refused."""
        algorithm, notes = self._e.resolved.algorithm, list[str]()
        for client, received in self._received(came, notes):
            client.bytes_received += algorithm.received_bytes(client, received)
            algorithm.apply(client, received, step)
        return notes

    def refresh(self, came: Mapping[RequestKey, Any], step: int) -> list[str]:
        """Take in what was asked for again, which was received and counted before, also what was refused."""
        notes, counted = list[str](), [(client, client.refused) for client in self._e.clients]
        for client, received in self._received(came, notes):
            client.pool.refresh(received)
        for client, refused in counted:
            client.refused = refused
        return notes

    def _received(self, came: Mapping[RequestKey, Any], notes: list[str]) -> Iterator[tuple[Client, list[Snapshot]]]:
        """Yield each client with what it asked for. A refused answer is counted, noted once and left out."""
        answers = CheckedAnswers(
            self._e.origins, self._answers | {key: self.receive(sent) for key, sent in came.items()}
        )
        for node, asked in self._asked.items():
            client, received = self._nodes[node][0], list[Snapshot]()
            for found in answers.fulfil(asked):
                if not isinstance(found, tuple):
                    received.append(found)
                    continue
                request, error = found
                client.refused += 1
                if (client.index, request.owner) not in self._noted_refusals:
                    self._noted_refusals.add((client.index, request.owner))
                    notes.append(f"{client.name} refused an answer and continues without it: {error}")
            yield client, received
        self._asked, self._answers = {}, {}

    def scores(self, part: int) -> list[Scores]:
        if part == 0 and self._e.resolved.algorithm.reads_public:  # an evaluation begins
            for client in self._e.clients:
                client.own_statistics = None if client.log_prior_C is None else own_statistics(client)
        return [score_client(client, self._e.parts[part]) for client in self._e.clients]

    def taught(self, start: int, stop: int) -> TeacherTally | None:
        resolved = self._e.resolved
        return who_taught_whom(self._e.clients, resolved.algorithm, start, stop, pairs=resolved.measures_relations)

    def probes(self) -> list[float]:
        return self._e.probes()

    def states(self, known: Container[str], pools: bool) -> tuple[list[ClientState], Snapshots]:
        return states_of(map(live_state, self._e.clients), known, pools=pools)

    def edge(self, step: int, known: Container[str]) -> tuple[list[ClientState], Snapshots]:
        """Return the states at the edge before `step`: as they were kept, or as they are if no step was taken since."""
        if self._edge is not None and self._edge[0] == step:
            return states_of(self._edge[1], known)
        return self.states(known, pools=True)

    def restore(self, states: Mapping[int, ClientState], snapshots: Snapshots, step: int) -> None:
        """Return clients to a save; what it does not hold is asked for again afterwards (`ask_again`)."""
        origins = self._e.origins
        entries = {name: restored_snapshot(name, own, origins) for name, own in snapshots.items()}
        for client in self._e.clients:
            restore_client(client, states[client.index], "the last save")
            if not self._e.resolved.algorithm.memory_fits(client, step):
                raise RunError(f"the last save: what is kept of {client.name} does not fit its model; {START_AGAIN}")
            client.owner.restore(snapshot for snapshot in entries.values() if snapshot.client == client.index)
            pool = [entries[name] for name in states[client.index].pool]
            client.pool.entries = [origins[snapshot.client].pool_entry(snapshot) for snapshot in pool]


def average_group(members: Sequence[Client], step: int) -> None:
    """Replace the models of a group by their mean; each member receives one model."""
    if len(members) == 1:
        return
    shown = [member.snapshot(step) for member in members]
    mean = mean_values(shown)
    for member, snapshot in zip(members, shown, strict=True):
        member.state.take_mean(mean)
        member.bytes_received += snapshot.nbytes

"""The interface of engines: the workers that do the work of a run, and the order in which they do it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyheads.client.state import ClientState, Snapshots, owner_of
from manyheads.evaluation.accuracy import Scores
from manyheads.evaluation.teacher_tally import TeacherTally
from manyheads.exchange.request import Request, RequestKey
from manyheads.runs.record import Saved

Progress = Callable[[int], None]  # called with the number of client-steps just taken


@dataclass(frozen=True)
class Window:
    """The steps start ... stop - 1 between two edges of the run, in which no client needs any other."""

    start: int
    stop: int


@dataclass(frozen=True)
class WindowLosses:
    """The losses of a window, and whether the weights at its end are finite."""

    terms: tuple[str, ...]
    values: Tensor  # clients x steps x terms, on the CPU
    finite: tuple[bool, ...]  # by client
    data_seconds: float = 0.0  # spent on drawing and gathering batches; a mean over workers
    trace: bytes | None = None  # from torch's profiler, on request


class Engine(ABC):
    """An engine: it decides where clients live and who does their work, and offers the same methods whatever it is.

    The nodes of the graph (usually one client each) are dealt out to workers. A worker does everything that concerns
    its own clients alone; what crosses between clients is passed on here.
    """

    can_lose_workers = False  # a worker may be lost; the run then returns to its last save

    def __init__(self, nodes: Sequence[Sequence[int]], groups: Sequence[Sequence[int]], device: str) -> None:
        self.device = device  # clients train on it
        self._nodes = nodes  # by worker
        self._notes: list[str] = []
        self._clients = [sorted(client for node in own for client in groups[node]) for own in nodes]  # by worker
        self._worker_of = {client: worker for worker, own in enumerate(self._clients) for client in own}

    @abstractmethod
    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        """Call a method of some workers, in parallel if the engine can; return their answers in this order."""

    @abstractmethod
    def ask_while_busy(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every worker, even if it is busy; the engine cannot be used afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Release what the engine holds."""

    @abstractmethod
    def fetch_clients(self) -> None:
        """Copy the clients' states from the workers into this process, at the end of a run."""

    def notes(self) -> list[str]:
        """Return the notes for the user since the last call."""
        said, self._notes = self._notes, []
        return said

    def train(self, window: Window, progress: Progress, *, trace: bool = False, keep: bool = False) -> WindowLosses:
        """Let each client take its steps of the window, alone.

        Args:
            window: the steps.
            progress: called with the number of client-steps just taken.
            trace: let torch's profiler watch the first worker.
            keep: keep the clients' states at the start of the window, for `edge`.
        """
        arguments = {worker: (window, trace and worker == 0, keep) for worker in range(len(self._nodes))}
        found: list[WindowLosses] = self.ask("train", arguments, progress)
        values = self._in_order([list(own.values) for own in found])
        finite = self._in_order([own.finite for own in found])
        data = sum(own.data_seconds for own in found) / len(found)
        return WindowLosses(found[0].terms, torch.stack(values), tuple(finite), data, found[0].trace)

    def exchange(self, step: int) -> None:
        """Let clients meet, if that is due: only here does anything cross. All collect before any applies."""
        self._round("collect", "apply", step)

    def _round(self, begin: str, end: str, step: int) -> None:
        """Let all workers ask, the owners answer, and all workers take in; an answer travels once to each worker."""
        asked: list[list[Request] | None] = self._ask_all(begin, step)
        if any(own is None for own in asked):
            return
        by_owner: dict[int, list[Request]] = {}
        away: list[set[RequestKey]] = [set() for _ in asked]  # by worker: what it asks of other workers
        for worker, own in enumerate(asked):
            for request in own or ():
                by_owner.setdefault(self._worker_of[request.owner], []).append(request)
                if self._worker_of[request.owner] != worker:
                    away[worker].add(request.key)
        travels = set().union(*away)
        answers: dict[RequestKey, Any] = {}
        owners = {worker: (own, {r.key for r in own} & travels) for worker, own in sorted(by_owner.items())}
        for found in self.ask("answer", owners):
            answers.update(found)
        came = [{key: answers[key] for key in sorted(own, key=str)} for own in away]
        for notes in self.ask(end, {worker: (own, step) for worker, own in enumerate(came)}):
            self._notes += notes

    def scores(self, part: int) -> list[Scores]:
        """Return the scores of every client's heads on a part of the data."""
        return self._in_order(self._ask_all("scores", part))

    def taught(self, start: int, stop: int) -> TeacherTally | None:
        """Count who taught whom in steps start ... stop - 1; None if the algorithm chooses no teachers."""
        found: list[TeacherTally | None] = self._ask_all("taught", start, stop)
        total = found[0]
        for counted in found[1:]:
            total = None if total is None or counted is None else total + counted
        return total

    def probes(self) -> list[float]:
        """Return the shared accuracy that the embedding of every client allows."""
        return self._in_order(self._ask_all("probes"))

    def states(self, known: Container[str], *, pools: bool = True) -> tuple[list[ClientState], Snapshots]:
        """Return everything that a save keeps, but of the snapshots only those that are not `known`."""
        return self._merged(self._ask_all("states", known, pools))

    def edge(self, step: int, known: Container[str]) -> tuple[list[ClientState], Snapshots]:
        """Return the states at the edge before `step`, even if clients have trained since: for a run that stops."""
        return self._merged(self.ask_while_busy("edge", step, known))

    def _merged(self, found: Sequence[tuple[Sequence[ClientState], Snapshots]]) -> tuple[list[ClientState], Snapshots]:
        snapshots = {name: tensors for _, own in found for name, tensors in own.items()}
        return self._in_order([states for states, _ in found]), snapshots

    def restore(self, saved: Saved) -> None:
        """Return every client to a save."""
        arguments = {}
        for worker, members in enumerate(self._clients):
            states = {client: saved.clients[client] for client in members}
            names = {name for state in states.values() for name in state.pool}
            names |= {name for name in saved.snapshots if owner_of(name) in states}
            arguments[worker] = (states, {name: saved.snapshots[name] for name in names}, saved.step)
        self.ask("restore", arguments)
        self._round("ask_again", "refresh", saved.step)

    def _ask_all(self, method: str, *arguments: Any) -> list[Any]:
        return self.ask(method, dict.fromkeys(range(len(self._nodes)), arguments))

    def _in_order(self, by_worker: Sequence[Sequence[Any]]) -> list[Any]:
        """Merge a list per worker, over its clients, into one list over all clients."""
        found = {
            client: item
            for members, own in zip(self._clients, by_worker, strict=True)
            for client, item in zip(members, own, strict=True)
        }
        return [found[client] for client in sorted(found)]

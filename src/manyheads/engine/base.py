"""What an engine is: the workers that do the work of a run, and the order in which they do it."""

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

Progress = Callable[[int], None]  # is told how many client-steps were taken


@dataclass(frozen=True)
class Window:
    """Steps start ... stop - 1, between two edges of the run: between them no client needs any other."""

    start: int
    stop: int


@dataclass(frozen=True)
class WindowLosses:
    """Every loss of a window, and whether the weights that it left are numbers."""

    terms: tuple[str, ...]
    values: Tensor  # clients x steps x terms, on the CPU
    finite: tuple[bool, ...]  # by client
    data_seconds: float = 0.0  # of these, to draw and gather batches; of several workers the mean
    trace: bytes | None = None  # of torch's profiler, where it was asked for


class Engine(ABC):
    """Where clients live and who does their work. What is asked of it is the same for every engine.

    The nodes of the graph (mostly one client each) are dealt out to workers. A worker does all that concerns its own
    clients alone; what they have to do with each other is here, and is nothing but passing on what was shown.
    """

    can_lose_workers = False  # whether a worker may be lost, so that the run has to go back to its last save

    def __init__(self, nodes: Sequence[Sequence[int]], groups: Sequence[Sequence[int]], device: str) -> None:
        self.device = device  # that clients train on
        self._nodes = nodes  # by worker
        self._worker_of = {node: worker for worker, own in enumerate(nodes) for node in own}
        self._notes: list[str] = []
        self._clients = [sorted(client for node in own for client in groups[node]) for own in nodes]  # by worker

        self._home_of = {client: worker for worker, own in enumerate(self._clients) for client in own}

    @abstractmethod
    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        """Call a method of some workers, at the same time where the engine can; return their answers in this order."""

    @abstractmethod
    def ask_beside(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every worker, also in the middle of something else; the engine is of no use afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the engine holds."""

    @abstractmethod
    def bring_home(self) -> None:
        """At the end: the clients of this process become what they are in their workers."""

    def notes(self) -> list[str]:
        """Return what a person should know and was not told yet."""
        said, self._notes = self._notes, []
        return said

    def train(self, window: Window, progress: Progress, *, trace: bool = False, keep: bool = False) -> WindowLosses:
        """Let each client take its steps of the window, alone.

        Args:
            window: the steps.
            progress: is told how many client-steps were taken.
            trace: whether torch's profiler watches the first worker.
            keep: whether to keep what the clients were before, for `edge`.
        """
        arguments = {worker: (window, trace and worker == 0, keep) for worker in range(len(self._nodes))}
        found: list[WindowLosses] = self.ask("train", arguments, progress)
        values = self._in_order([list(own.values) for own in found])
        finite = self._in_order([own.finite for own in found])
        data = sum(own.data_seconds for own in found) / len(found)
        return WindowLosses(found[0].terms, torch.stack(values), tuple(finite), data, found[0].trace)

    def exchange(self, step: int) -> None:
        """Let clients meet, if that is due: the only place where anything crosses. All collect before any applies."""
        self._round("collect", "apply", step)

    def _round(self, begin: str, end: str, step: int) -> None:
        """Every worker asks, those that are asked answer, every worker takes in; each answer travels to it once."""
        asked: list[list[Request] | None] = self._ask_all(begin, step)
        if any(own is None for own in asked):
            return
        by_owner: dict[int, list[Request]] = {}
        away: list[set[RequestKey]] = [set() for _ in asked]  # by worker: what it hears from others
        for worker, own in enumerate(asked):
            for request in own or ():
                by_owner.setdefault(self._home_of[request.owner], []).append(request)
                if self._home_of[request.owner] != worker:
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
        """What the heads of every client do on a part."""
        return self._in_order(self._ask_all("scores", part))

    def taught(self, start: int, stop: int) -> TeacherTally | None:
        """Who taught whom in steps start ... stop - 1; None where nobody is chosen."""
        found: list[TeacherTally | None] = self._ask_all("taught", start, stop)
        total = found[0]
        for counted in found[1:]:
            total = None if total is None or counted is None else total + counted
        return total

    def probes(self) -> list[float]:
        """What the embedding of every client allows."""
        return self._in_order(self._ask_all("probes"))

    def states(self, known: Container[str], *, pools: bool = True) -> tuple[list[ClientState], Snapshots]:
        """All that a save keeps; snapshots only those that are not `known`."""
        return self._merged(self._ask_all("states", known, pools))

    def edge(self, step: int, known: Container[str]) -> tuple[list[ClientState], Snapshots]:
        """The states at the edge before `step`, though clients may have gone on from there: for a run that stops."""
        return self._merged(self.ask_beside("edge", step, known))

    def _merged(self, found: Sequence[tuple[Sequence[ClientState], Snapshots]]) -> tuple[list[ClientState], Snapshots]:
        snapshots = {name: tensors for _, own in found for name, tensors in own.items()}
        return self._in_order([states for states, _ in found]), snapshots

    def restore(self, saved: Saved) -> None:
        """Put every client back to a save."""
        arguments = {}
        for worker, members in enumerate(self._clients):
            states = {client: saved.clients[client] for client in members}
            names = {name for state in states.values() for name in state.pool}
            names |= {name for name in saved.snapshots if owner_of(name) in states}
            arguments[worker] = (states, {name: saved.snapshots[name] for name in names}, saved.step)
        self.ask("restore", arguments)
        self._round("ask_again", "refresh", saved.step)

    def _ask_all(self, method: str, *arguments: Any, progress: Progress | None = None) -> list[Any]:
        return self.ask(method, dict.fromkeys(range(len(self._nodes)), arguments), progress)

    def _in_order(self, by_worker: Sequence[Sequence[Any]]) -> list[Any]:
        """From lists by worker, of its clients, to one list of all clients."""
        found = {
            client: item
            for members, own in zip(self._clients, by_worker, strict=True)
            for client, item in zip(members, own, strict=True)
        }
        return [found[client] for client in sorted(found)]

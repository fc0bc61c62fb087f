"""The base of engines whose workers live in other processes: dealing out clients, and what travels to workers."""

import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyheads.client.state import ClientState, Snapshots, live_state, restore_client, states_of
from manyheads.engine.base import Engine
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.worker import Trainer, Worker
from manyheads.errors import SnapshotError
from manyheads.exchange.transport import Answer
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.setup.build import Ensemble, build_ensemble
from manyheads.setup.resolved import ResolvedExperiment


class RemoteEngine(Engine):
    """An engine with workers in other processes. The clients here keep their initial weights until they are fetched."""

    can_lose_workers = True

    def __init__(self, ensemble: Ensemble, workers: int, options: ResolvedOptions) -> None:
        work = [sum(ensemble.resolved.models[client].flops for client in group) for group in ensemble.resolved.groups]
        super().__init__(deal(work, workers), ensemble.resolved.groups, options.device)
        self._ensemble = ensemble

    def fetch_clients(self) -> None:
        states, _ = self.states((), pools=False)
        for client, state in zip(self._ensemble.clients, states, strict=True):
            restore_client(client, state, "what a worker holds")

    def _names(self, worker: int) -> str:
        """Return the names of a worker's clients, for messages."""
        names = [self._ensemble.clients[client].name for client in self._clients[worker]]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def deal(work: Sequence[int], workers: int) -> list[list[int]]:
    """Deal out nodes so that the work is even: the heaviest first, each to the worker with the least so far."""
    nodes: list[list[int]] = [[] for _ in range(workers)]
    load = [0] * workers
    for node in sorted(range(len(work)), key=lambda node: (-work[node], node)):
        worker = min(range(workers), key=lambda worker: (load[worker], len(nodes[worker]), worker))
        nodes[worker].append(node)
        load[worker] += work[node]
    return [sorted(own) for own in nodes]


@dataclass(frozen=True)
class SentCheckpoint:
    """A checkpoint on its way to another worker, which knows everything else about its client."""

    client: int
    step: int
    tensors: dict[str, Tensor]


class RemoteWorker(Worker):
    """A worker in a process of its own."""

    def __init__(self, ensemble: Ensemble, trainer: Trainer) -> None:
        super().__init__(ensemble, trainer)
        self.at_work = threading.Lock()  # held during a call

    def edge(self, step: int, known: Container[str]) -> tuple[list[ClientState], Snapshots]:
        """Return the states at an edge, in a thread other than the one that trains, without waiting for its window."""
        while not (idle := self.at_work.acquire(timeout=0.01)):
            if self._edge is not None and self._edge[0] == step:
                break
        try:
            return super().edge(step, known)
        finally:
            if idle:
                self.at_work.release()

    def send(self, answer: Answer | SnapshotError) -> Any:
        if isinstance(answer, WeightsSnapshot):
            return SentCheckpoint(answer.client, answer.step, answer.tensors())
        return answer

    def receive(self, sent: Any) -> Answer | SnapshotError:
        if isinstance(sent, SentCheckpoint):
            return self._e.origins[sent.client].restored_checkpoint(sent.step, sent.tensors)
        answer: Answer | SnapshotError = sent
        return answer


@dataclass(frozen=True)
class ClientPayload:
    """The states from which another process makes some clients as they are here, without reading weight files again."""

    states: dict[int, ClientState]
    device: str
    dtype: torch.dtype

    @classmethod
    def of(cls, ensemble: Ensemble, members: Sequence[int], device: str) -> "ClientPayload":
        clients = [ensemble.clients[member] for member in members]
        states, _ = states_of(map(live_state, clients), (), pools=False)
        return cls(dict(zip(members, states, strict=True)), device, clients[0].state.values.dtype)

    def unpacked(self, resolved: ResolvedExperiment) -> Ensemble:
        device = torch.device(self.device)
        ensemble = build_ensemble(resolved, device, self.dtype, pretrained=False, only=self.states)
        for client in ensemble.clients:
            restore_client(client, self.states[client.index], "what was sent to a worker")
        return ensemble

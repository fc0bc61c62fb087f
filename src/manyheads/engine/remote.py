"""What engines share whose crews live in other processes: who gets which clients, what travels, and how it fails."""

import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.checks import Checked
from manyheads.engine.base import Engine, Options
from manyheads.engine.crew import Crew
from manyheads.ensemble import Ensemble, assembled
from manyheads.errors import ManyheadsError
from manyheads.runs import ClientState, restore_client, states_of
from manyheads.snapshot import Snapshot


class Remote(Engine):
    """Crews in other processes. The clients of this process keep their first weights until they are brought home."""

    can_lose_crews = True

    def __init__(self, ensemble: Ensemble, crews: int, options: Options) -> None:
        work = [sum(ensemble.models[client].flops for client in group) for group in ensemble.groups]
        super().__init__(deal(work, crews), ensemble.groups, options.device)
        self._ensemble = ensemble

    def bring_home(self) -> None:
        states, _ = self.states((), pools=False)
        for client, state in zip(self._ensemble.clients, states, strict=True):
            restore_client(client, state, "what a worker holds")

    def _names(self, crew: int) -> str:
        """Of its clients, for messages."""
        names = [self._ensemble.clients[client].name for client in self._clients[crew]]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def deal(work: Sequence[int], crews: int) -> list[list[int]]:
    """Nodes dealt out so that the work is even: the heaviest first, each to the crew that has least so far."""
    nodes: list[list[int]] = [[] for _ in range(crews)]
    load = [0] * crews
    for node in sorted(range(len(work)), key=lambda node: (-work[node], node)):
        crew = min(range(crews), key=lambda crew: (load[crew], len(nodes[crew]), crew))
        nodes[crew].append(node)
        load[crew] += work[node]
    return [sorted(own) for own in nodes]


@dataclass(frozen=True)
class Sent:
    """A snapshot on its way to another crew, which knows all else about the client that it is of."""

    client: int
    step: int
    tensors: dict[str, Tensor]


class RemoteCrew(Crew):
    """A crew in a process of its own."""

    def send(self, snapshot: Snapshot) -> Any:
        return Sent(snapshot.client, snapshot.step, snapshot.tensors())

    def receive(self, sent: Sent) -> Snapshot:
        return self._e.origins[sent.client].restored(sent.step, sent.tensors)


@dataclass(frozen=True)
class Luggage:
    """What another process needs to make some clients as they are here. Files of first weights are not read again."""

    states: dict[int, ClientState]
    device: str
    dtype: torch.dtype

    @classmethod
    def of(cls, ensemble: Ensemble, members: Sequence[int], device: str) -> "Luggage":
        clients = [ensemble.clients[member] for member in members]
        states, _ = states_of(clients, (), pools=False)
        return cls(dict(zip(members, states, strict=True)), device, clients[0].state.values.dtype)

    def unpacked(self, checked: Checked) -> Ensemble:
        device = torch.device(self.device)
        ensemble = assembled(checked, device, self.dtype, pretrained=False, only=self.states)
        for client in ensemble.clients:
            restore_client(client, self.states[client.index], "what was sent to a worker")
        return ensemble


def checked_of(ensemble: Ensemble) -> Checked:
    """An ensemble without its clients: what all processes know."""
    return Checked(**{field.name: getattr(ensemble, field.name) for field in fields(Checked)})


@dataclass(frozen=True)
class Failed:
    """An error on its way home."""

    kind: type[ManyheadsError] | None  # one of ours, whose text says all
    text: str
    where: str  # its traceback

    def error(self, who: str) -> Exception:
        if self.kind is None:
            error: Exception = RuntimeError(f"{who}: {self.text}")
            error.__cause__ = RemoteTraceback(self.where)
            return error
        error = self.kind.__new__(self.kind)
        error.args = (self.text,)
        return error


class RemoteTraceback(Exception):
    """The traceback of an error in another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def attempted(call: Callable[[], Any]) -> Any:
    """What a call gives, or how it failed."""
    try:
        return call()
    except ManyheadsError as error:
        return Failed(type(error), str(error), "")
    except Exception as error:
        return Failed(None, f"{type(error).__name__}: {error}", traceback.format_exc())


class Packer(pickle.Pickler):
    """Tensors travel as the arrays that they are, arrays that are mapped from a file as its path."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and obj.dtype != torch.bfloat16:
            return torch.from_numpy, (obj.detach().cpu().numpy(),)
        if type(obj) is np.memmap and obj.filename and obj.flags.c_contiguous and not isinstance(obj.base, np.memmap):
            return np.memmap, (obj.filename, obj.dtype, "r", obj.offset, obj.shape)
        return NotImplemented


def packed(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Bytes, and beside them the contents of large arrays, which are not copied."""
    body, buffers = BytesIO(), list[pickle.PickleBuffer]()

    def beside(buffer: pickle.PickleBuffer) -> bool:
        if small := buffer.raw().nbytes < 4096:
            return small  # among the bytes
        buffers.append(buffer)
        return small

    Packer(body, protocol=5, buffer_callback=beside).dump(value)
    return body.getvalue(), buffers


def unpacked(body: bytes, buffers: Sequence[Any]) -> Any:
    return pickle.loads(body, buffers=buffers)  # noqa: S301 - from a process that we started

"""The state of a client: what a save stores, and what moves a client to another worker."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyheads.client.client import Client
from manyheads.errors import START_AGAIN, RunError
from manyheads.exchange.origin import Origin
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.weights import checkpoint

MEMORY = "memory "  # before the names of what an algorithm keeps of a client
OWN_STATISTICS = "own statistics"


@dataclass(frozen=True)
class ClientState:
    """Everything of a client that changes while it trains, on the CPU."""

    tensors: dict[str, Tensor]
    layout: str  # of its flat tensor, as JSON
    pool: list[str]  # names of the snapshots in its pool
    bytes_received: int
    refused: int = 0  # answers of others that could not be used


Snapshots = dict[str, dict[str, Tensor]]  # the tensors of snapshots, by name


@dataclass(frozen=True)
class LiveState:
    """The changing parts of a client, on its own device: a `ClientState` is made from them."""

    tensors: Mapping[str, Tensor]
    layout: Sequence[Mapping[str, object]]
    pool: Sequence[Snapshot]
    kept: Sequence[Snapshot]  # for others, who will ask about them
    bytes_received: int
    refused: int


def live_state(client: Client, *, copied: bool = False) -> LiveState:
    """Return the parts of a client as they are now; a copy stays so while the client trains on."""
    changing = {**checkpoint(client.state), "momentum": client.momentum}
    memory = {f"{MEMORY}{name}": tensor for name, tensor in client.memory.items()}
    changing |= memory
    if client.own_statistics is not None:
        changing[OWN_STATISTICS] = client.own_statistics
    if copied:
        changing = {name: tensor.detach().clone() for name, tensor in changing.items()}
    return LiveState(
        changing,
        client.state.describe(),
        tuple(client.pool.entries),
        tuple(client.owner.kept.values()),
        client.bytes_received,
        client.refused,
    )


def states_of(
    live: Iterable[LiveState], known: Container[str], *, pools: bool = True
) -> tuple[list[ClientState], Snapshots]:
    """Return the states of clients, and the snapshots that a save needs and that are not `known`."""
    states, snapshots = [], dict[str, dict[str, Tensor]]()
    for own in live:
        for entry in (*own.pool, *own.kept) if pools else ():
            name = _name(entry)
            if name not in known and name not in snapshots and (tensors := entry.tensors()):
                snapshots[name] = _on_cpu(tensors)
        pool = [_name(entry) for entry in own.pool] if pools else []
        tensors, layout = _on_cpu(own.tensors), json.dumps(own.layout)
        states.append(ClientState(tensors, layout, pool, own.bytes_received, own.refused))
    return states, snapshots


def restore_client(client: Client, state: ClientState, where: str) -> None:
    """Put a client (without its pool) back to a state."""
    tensors, expected = state.tensors, {**checkpoint(client.state), "momentum": client.momentum}
    own = tensors.get(OWN_STATISTICS)
    if own is not None:
        expected[OWN_STATISTICS] = client.state.buffers
    memory = {name.removeprefix(MEMORY): tensor for name, tensor in tensors.items() if name.startswith(MEMORY)}
    if len(tensors) != len(expected) + len(memory) or not _fits(tensors, expected):
        raise RunError(f"{where}: does not fit the model of {client.name}; {START_AGAIN}")
    client.state.load(tensors["values"], {name: tensors[f"integer {name}"] for name in client.state.integers})
    client.momentum.copy_(tensors["momentum"])
    client.own_statistics = None if own is None else own.to(client.momentum.device)
    client.memory = {name: tensor.to(client.momentum.device) for name, tensor in memory.items()}
    client.bytes_received, client.refused = state.bytes_received, state.refused


def restored_snapshot(name: str, tensors: Mapping[str, Tensor], origins: Sequence[Origin]) -> Snapshot:
    """Return a snapshot of a save, wherever its client lives."""
    origin, message = origins[owner_of(name)], tensors.get("message")
    if message is None:
        fit, model = origin.confidence.loaded(tensors), origin.replica.model
        fits = _fits(tensors, checkpoint(origin.replica.state)) and origin.confidence.works_with(fit, model)
    else:
        fits = origin.schema is not None and message.dtype == torch.uint8
    if not fits:
        raise RunError(f"{name}: does not fit the model of client {owner_of(name)}; {START_AGAIN}")
    return origin.restored(int(name.split("-")[1]), tensors)


def owner_of(name: str) -> int:
    """Return the client whose snapshot a file of a save holds.

    >>> owner_of("snapshot-00000400-client-0003.safetensors")
    3
    """
    return int(name.removesuffix(".safetensors").rpartition("-")[2])


def _fits(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    """Tell whether the expected tensors are there, each with its shape and type."""
    return all(
        name in tensors and tensors[name].shape == own.shape and tensors[name].dtype == own.dtype
        for name, own in expected.items()
    )


def _name(snapshot: Snapshot) -> str:
    return f"snapshot-{snapshot.step:08d}-client-{snapshot.client:04d}.safetensors"


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}

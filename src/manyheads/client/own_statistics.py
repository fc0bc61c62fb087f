"""BatchNorm statistics of a client's own samples, for its own task.

While a client also trains on public data, its running statistics are those of a mixture. Heads that teach and learn
want that; on the client's own samples heads are better with statistics of such samples (docs/log.md).
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.client.client import Client
from manyheads.models.client_model import ClientModel
from manyheads.models.flat import FlatState

MOST_SAMPLES = 1_024  # private samples that statistics are taken from
AS_MANY = 32  # the running statistics count as much as so many private samples: a few of these say little


@torch.no_grad()
def own_statistics(client: Client) -> Tensor | None:
    """Return the buffers of a client's model with BatchNorm statistics of its private samples; None: none is trained.

    They are means over the first batches of its private stream, as they come in training, and, where it has few private
    samples, also of the running statistics. Nothing else changes.
    """
    model, state, size = client.model, client.state, client.training.batch_size
    was_training = model.training
    model.train()  # a model may keep some layers from training
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    layers = [layer for layer in layers if layer.training]
    before, integers = state.buffers.clone(), state.copy_integers()
    momenta = [layer.momentum for layer in layers]
    trust = len(client.private) / (len(client.private) + AS_MANY)
    number = -(-min(MOST_SAMPLES, len(client.private)) // size)
    try:  # whatever happens, a stop in the middle of it included
        model.eval()
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a mean over all batches
            layer.train()
        window = client.private.window(0, number, size)
        for batch in range(number if layers else 0):
            model(client.private.rows(window, batch, state.values.dtype).images)
        return before.lerp(state.buffers, trust) if layers else None
    finally:
        _load(state, before)
        for name, tensor in state.integers.items():
            tensor.copy_(integers[name])
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


@contextlib.contextmanager
def for_own_task(client: Client) -> Iterator[None]:
    """Let a client's model answer with its own statistics, if it has any, for as long as this lasts."""
    if client.own_statistics is None:
        yield
        return
    before = client.state.buffers.clone()
    try:
        _load(client.state, client.own_statistics)
        yield
    finally:
        _load(client.state, before)


def model_for_own_task(client: Client) -> ClientModel:
    """Return a client's model or, if it has statistics of its own, a copy with these."""
    if client.own_statistics is None:
        return client.model
    model = client.make_model().to(client.momentum.device)
    state = FlatState(model, trainable=False)
    state.load(client.state.values, client.state.integers)
    _load(state, client.own_statistics)
    return model


@torch.no_grad()
def _load(state: FlatState, buffers: Tensor) -> None:
    state.buffers.copy_(buffers)

"""The contract of every kind of snapshot: its outputs are distributions, and they do not change later."""

import pytest
import safetensors.torch
import torch

from manyheads.client.client import Client
from manyheads.data.batches import Rows
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.exchange.snapshot import Snapshot
from manyheads.outputs import Outputs
from manyheads.setup.build import Ensemble, assemble
from tests.contracts import SNAPSHOTS, experiment, mhd, whole_snapshot

KINDS = [(kind, confidence) for kind in SNAPSHOTS for confidence in CONFIDENCES]


def trained(kind: str, confidence: str) -> Ensemble:
    """Return an ensemble after four steps and the exchange that follows them."""
    # So few public samples that a table holds all of them.
    few = {"public_fraction": 0.04}
    ensemble = assemble(experiment("mhd", algorithm=mhd(exchange=kind, confidence=confidence), data=few))
    train(ensemble, 0, 4)
    exchange(ensemble, step=4)
    return ensemble


def train(ensemble: Ensemble, start: int, stop: int) -> None:
    if start == 0:
        exchange(ensemble, step=0)
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(start, stop), lambda _: None)


def some_rows(client: Client) -> Rows:
    assert client.public is not None
    return client.public.rows(client.public.window(0, 1, 24), 0, client.state.values.dtype)


def same(one: Outputs, other: Outputs) -> bool:
    pairs = [
        (one.probabilities_BHC, other.probabilities_BHC),
        (one.embedding_BE, other.embedding_BE),
        (one.confidence_BH, other.confidence_BH),
    ]
    return all((a is None and b is None) or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


@pytest.mark.parametrize(("kind", "confidence"), KINDS)
def test_a_snapshot_answers_with_distributions(kind: str, confidence: str) -> None:
    ensemble = trained(kind, confidence)
    client = ensemble.clients[1]
    snapshot = whole_snapshot(client, 4)
    outputs = snapshot.outputs(some_rows(client))
    assert (snapshot.client, snapshot.step) == (1, 4)
    assert snapshot.nbytes > 0
    samples, heads, classes = outputs.probabilities_BHC.shape
    assert (samples, classes) == (24, 10)
    assert ensemble.resolved.heads - 1 <= heads <= ensemble.resolved.heads  # the last head teaches nobody
    torch.testing.assert_close(outputs.probabilities_BHC.sum(-1), torch.ones(24, heads), rtol=0.0, atol=1e-3)
    assert (outputs.probabilities_BHC >= 0.0).all()
    assert outputs.embedding_BE is not None
    assert outputs.embedding_BE.shape == (24, ensemble.resolved.embedding_widths[1])
    assert (outputs.confidence_BH is not None) == CONFIDENCES[confidence].fitted
    for tensor in (outputs.probabilities_BHC, outputs.embedding_BE, outputs.confidence_BH):
        if tensor is not None:
            assert tensor.isfinite().all()
            assert not tensor.requires_grad
            assert tensor.dtype == client.state.values.dtype
    if outputs.confidence_BH is not None:
        assert outputs.confidence_BH.shape == (24, heads)


@pytest.mark.parametrize(("kind", "confidence"), KINDS)
def test_a_snapshot_does_not_change_while_its_owner_trains_on(kind: str, confidence: str) -> None:
    ensemble = trained(kind, confidence)
    client = ensemble.clients[1]
    rows, snapshot = some_rows(client), whole_snapshot(client, 4)
    before = snapshot.outputs(rows)
    mode, weights = client.model.training, client.state.values.clone()
    snapshot.outputs(rows)
    assert client.model.training == mode
    assert torch.equal(client.state.values, weights), "asking a snapshot must not change its owner"
    train(ensemble, 4, 8)
    exchange(ensemble, step=8)
    assert same(snapshot.outputs(rows), before)
    assert not same(whole_snapshot(client, 8).outputs(rows), before)


@pytest.mark.parametrize(("kind", "confidence"), KINDS)
def test_a_saved_snapshot_answers_bit_for_bit_the_same(kind: str, confidence: str) -> None:
    ensemble = trained(kind, confidence)
    client = ensemble.clients[1]
    rows, snapshot = some_rows(client), whole_snapshot(client, 4)
    saved = safetensors.torch.save(snapshot.tensors())
    train(ensemble, 4, 6)
    restored = client.origin.restored(4, safetensors.torch.load(saved))
    assert (restored.client, restored.step, restored.nbytes) == (1, 4, snapshot.nbytes)
    assert same(restored.outputs(rows), snapshot.outputs(rows))
    again: Snapshot = client.origin.restored(4, restored.tensors())
    assert same(again.outputs(rows), snapshot.outputs(rows))

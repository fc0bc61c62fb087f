"""Balance: the prior by its formula, and every private loss put together by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads import ConfigurationError, Experiment
from manyheads.client.balance import log_prior
from manyheads.client.client import Batch, Client
from manyheads.engine.plain import exchange
from manyheads.setup.build import Ensemble, assemble
from tests.contracts import ALGORITHM_KNOBS


@given(counts=st.lists(st.integers(0, 10_000), min_size=1, max_size=20), tau=st.floats(0.0, 10.0))
def test_the_prior_is_that_of_krichevsky_and_trofimov(counts: list[int], tau: float) -> None:
    found = log_prior(np.array(counts), tau)
    for count, own in zip(counts, found, strict=True):
        assert own == pytest.approx(tau * math.log((count + 0.5) / (sum(counts) + 0.5 * len(counts))))
    assert np.exp(log_prior(np.array(counts), 1.0)).sum() == pytest.approx(1.0)


def made(tiny: Experiment, name: str, balance: float, dtype: torch.dtype, **values: Any) -> Ensemble:
    algorithm = {"name": name, **ALGORITHM_KNOBS[name]}
    wanted = tiny.with_values(algorithm=algorithm, training={"balance": balance}).with_values(**values)
    return assemble(wanted, dtype=dtype)


def first_batch(ensemble: Ensemble, client: Client) -> Batch:
    return client.batches(0, 1, ensemble.resolved.algorithm.plan(client, 0, 1)).at(0)


def private_logits(client: Client, batch: Batch) -> Tensor:
    logits_BHC: Tensor = client.model(batch.private.images)[0]
    return logits_BHC[:, 0]


@pytest.mark.parametrize("balance", [0.5, 1.0])
@pytest.mark.parametrize("name", ALGORITHM_KNOBS)
def test_the_private_loss_by_hand(name: str, balance: float, tiny: Experiment) -> None:
    """It is CE(logits + tau log prior), sample by sample; of FedMD the first step is on private data."""
    ensemble = made(tiny, name, balance, torch.float64)
    exchange(ensemble, step=0)
    for client in ensemble.clients:
        batch, total = first_batch(ensemble, client), 0.0
        labels_of_all = [int(client.private.labels(torch.tensor([i]))) for i in client.private.indices]
        counts = [labels_of_all.count(label) for label in range(10)]
        for logits, label in zip(private_logits(client, batch).tolist(), batch.labels.tolist(), strict=True):
            shifted = [
                x + balance * math.log((n + 0.5) / (sum(counts) + 5.0)) for x, n in zip(logits, counts, strict=True)
            ]
            total += math.log(sum(math.exp(x) for x in shifted)) - shifted[label]
        terms = ensemble.resolved.algorithm.losses(client, batch, 0)
        assert terms["cross_entropy"].item() == pytest.approx(total / len(batch.labels))


@pytest.mark.parametrize("name", ALGORITHM_KNOBS)
def test_without_balance_it_is_plain_cross_entropy_bit_for_bit(name: str, tiny: Experiment) -> None:
    ensemble = made(tiny, name, 0.0, torch.float32)
    exchange(ensemble, step=0)
    for client in ensemble.clients:
        assert client.log_prior_C is None
        batch = first_batch(ensemble, client)
        terms = ensemble.resolved.algorithm.losses(client, batch, 0)
        assert torch.equal(terms["cross_entropy"], cross_entropy(private_logits(client, batch), batch.labels))


def test_labels_of_the_public_set_are_not_the_client_s(tiny: Experiment) -> None:
    """FedMD may begin on public labels, which have no client's prior."""
    ensemble = made(tiny, "fedmd", 1.0, torch.float64, algorithm={"first_public_steps": 2, "first_private_steps": 2})
    client = ensemble.clients[0]
    batch = first_batch(ensemble, client)
    logits_BHC, _ = client.model(batch.public.images)
    expected = cross_entropy(logits_BHC[:, 0], batch.public_labels())
    assert ensemble.resolved.algorithm.losses(client, batch, 0)["cross_entropy"].item() == pytest.approx(
        expected.item()
    )


def test_a_client_with_one_label_hardly_learns_from_it(tiny: Experiment) -> None:
    data = {"skew": math.inf, "primary_labels": {"assignment": "even", "clients_per_label": 1, "per_client": None}}
    pulled = {}
    for balance in (0.0, 1.0):
        ensemble = made(tiny, "separate", balance, torch.float64, data=data, clients=10)
        one = [client for client in ensemble.clients if np.count_nonzero(client.label_distribution) == 1]
        assert one, "skew = inf leaves a client its primary label"
        client, samples = one[0], len(one[0].private)
        with torch.no_grad():
            client.model.heads.weight.zero_()
            client.model.heads.bias.zero_()
        batch = first_batch(ensemble, client)
        loss = ensemble.resolved.algorithm.losses(client, batch, 0)["cross_entropy"]
        (gradient,) = torch.autograd.grad(loss, client.model.heads.bias)
        pulled[balance] = gradient[int(batch.labels[0])].item()
        label_prior = (samples + 0.5) / (samples + 5.0) if balance else 0.1
        assert loss.item() == pytest.approx(-math.log(label_prior))
        assert pulled[balance] == pytest.approx(label_prior - 1.0)
    assert abs(pulled[1.0]) < 0.1 * abs(pulled[0.0])


@pytest.mark.parametrize("balance", [-0.1, math.nan, math.inf, 11.0, "x", True, [1.0]])
def test_a_balance_that_is_none_is_one_line(balance: object, tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match=r"^training\.balance") as error:
        tiny.with_values(training={"balance": balance})
    assert "\n" not in str(error.value)

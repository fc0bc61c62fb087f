"""A client's step."""

import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads import Experiment
from manyheads.client.client import learning_rate
from manyheads.client.plan import WindowPlan
from manyheads.config.experiment import TrainingConfig
from manyheads.engine.plain import exchange
from manyheads.setup.build import assemble


def test_a_step_is_sgd_with_momentum_and_weight_decay(tiny: Experiment) -> None:
    """A step equals one of torch.optim.SGD on an ordinary copy of the model."""
    experiment = tiny.with_values(algorithm={"name": "separate"}, training={"balance": 0.0})
    ensemble = assemble(experiment, dtype=torch.float64)
    client, reference = ensemble.clients[0], assemble(experiment, dtype=torch.float64).clients[0].make_model().double()
    reference.load_state_dict(client.model.state_dict())
    training = experiment.training
    optimizer = torch.optim.SGD(
        reference.parameters(), lr=1.0, momentum=training.momentum, weight_decay=training.weight_decay
    )
    batches = client.batches(0, 8, WindowPlan())
    for step in range(8):
        rate, batch = learning_rate(training, step), batches.at(step)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        cross_entropy(reference(batch.private.images)[0][:, 0], batch.labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        client.step(ensemble.resolved.algorithm.losses, batch, step, rate)
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(client.model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


def test_private_samples_are_the_client_s_own(tiny: Experiment) -> None:
    ensemble = assemble(tiny)
    for client, own in zip(ensemble.clients, ensemble.resolved.split.private, strict=True):
        seen = client.private.window(0, 50, 16).samples_SB
        assert set(seen.flatten().tolist()) == set(own.tolist())
        assert client.public is not None
        public = client.public.window(0, 50, 16).samples_SB
        assert set(public.flatten().tolist()) <= set(ensemble.resolved.split.public.tolist())
        assert client.label_distribution.sum() == pytest.approx(1.0)


def test_distillation_does_not_touch_the_main_head(tiny: Experiment) -> None:
    """With and without the distillation terms, the first step of the main head's weights is the same."""
    moved = []
    for nu in (0.0, 3.0):
        knobs = {"nu_aux": nu, "nu_emb": nu, "own_labels": 0.0, "ramp": {"hold": 0.0, "rise": 0.0}}
        ensemble = assemble(tiny.with_values(algorithm=knobs))
        exchange(ensemble, step=0)
        client = ensemble.clients[0]
        plan = ensemble.resolved.algorithm.plan(client, 0, 1)
        client.step(ensemble.resolved.algorithm.losses, client.batches(0, 1, plan).at(0), 0, 0.1)
        moved.append(client.model.heads.weight.detach().clone().view(*client.model.shape_HC, -1))
    assert torch.equal(moved[0][0], moved[1][0])
    assert not torch.equal(moved[0][1:], moved[1][1:])


def test_both_passes_move_the_running_statistics_apart(tiny: Experiment) -> None:
    ensemble = assemble(tiny)
    client = ensemble.clients[0]
    client.step(
        ensemble.resolved.algorithm.losses,
        client.batches(0, 1, ensemble.resolved.algorithm.plan(client, 0, 1)).at(0),
        0,
        0.1,
    )
    assert {int(count) for count in client.state.integers.values()} == {2}


def test_learning_rate_warms_up_and_falls_to_zero() -> None:
    config = TrainingConfig(steps=100, warmup_steps=10, learning_rate=0.2)
    rates = [learning_rate(config, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.02)
    assert rates[9] == rates[10] == pytest.approx(0.2)
    assert rates[55] == pytest.approx(0.1)
    assert rates[99] == pytest.approx(0.1 * (1 + math.cos(math.pi * 89 / 90)))
    assert all(a >= b for a, b in pairwise(rates[10:]))
    constant = TrainingConfig(steps=100, warmup_steps=0, learning_rate=0.2, schedule="constant")
    assert {learning_rate(constant, step) for step in range(100)} == {0.2}

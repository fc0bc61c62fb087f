"""Every engine takes the same steps: one suite over ENGINES, with the plain loop as the reference."""

import contextlib

import pytest
import torch

from manyheads import Experiment
from manyheads.engine import ENGINES
from manyheads.engine.base import Options, Window, WindowLosses
from manyheads.engine.plain import Plain, exchange
from manyheads.ensemble import Ensemble, assemble
from tests.contracts import ALGORITHM_KNOBS


def run(experiment: Experiment, engine: str, windows: list[Window]) -> tuple[Ensemble, list[WindowLosses], int]:
    ensemble, taken, losses = assemble(experiment), 0, []

    def progress(client_steps: int) -> None:
        nonlocal taken
        taken += client_steps

    with contextlib.closing(ENGINES[engine](ensemble, Options())) as made:
        made.exchange(step=0)
        for window in windows:
            losses.append(made.train(window, progress))
            made.exchange(window.stop)
        made.bring_home()
    return ensemble, losses, taken


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("algorithm", ALGORITHM_KNOBS)
def test_an_engine_equals_the_plain_loop(tiny: Experiment, engine: str, algorithm: str) -> None:
    experiment = tiny.with_values(algorithm={"name": algorithm, **ALGORITHM_KNOBS[algorithm]})
    ensemble, losses, taken = run(experiment, engine, [Window(0, 4), Window(4, 7)])
    reference, expected, _ = run(experiment, "plain", [Window(0, 4), Window(4, 7)])
    assert taken == 7 * 3
    for ours, theirs in zip(losses, expected, strict=True):
        assert ours.terms == theirs.terms
        assert torch.equal(ours.values, theirs.values)
    assert [values.values.shape for values in losses] == [(3, 4, len(losses[0].terms)), (3, 3, len(losses[0].terms))]
    for own, other in zip(ensemble.clients, reference.clients, strict=True):
        assert torch.equal(own.state.values, other.state.values)
        assert torch.equal(own.momentum, other.momentum)


def test_the_reference_takes_one_client_after_another(tiny: Experiment) -> None:
    """What the plain engine does is what a loop over `client.step` does."""
    ensemble, by_hand = assemble(tiny), assemble(tiny)
    for e in (ensemble, by_hand):
        exchange(e, step=0)
    losses = Plain().train(ensemble.clients, ensemble.algorithm, Window(0, 3), lambda _: None)
    from manyheads.client import learning_rate

    for number, client in enumerate(by_hand.clients):
        batches = client.batches(0, 3, by_hand.algorithm.plan(client, 0, 3))
        for step in range(3):
            rate = learning_rate(tiny.training, step)
            _, values = client.step(by_hand.algorithm.losses, batches.at(step), step, rate)
            assert torch.equal(values, losses.values[number, step])

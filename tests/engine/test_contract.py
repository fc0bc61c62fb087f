"""All engines take the same steps: one suite over ENGINES and all cases, with the plain loop as the reference."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from manyheads import Experiment
from manyheads.engine import ENGINES
from manyheads.engine.base import Engine, Window
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.parallel import ParallelEngine
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.engine.threads import one_thread
from manyheads.setup.build import Ensemble, assemble
from manyheads.training.loop import windows
from tests.contracts import CASES, experiment

Make = Callable[[Ensemble, ResolvedOptions], Engine]
# An actor takes seconds to start. These hold what differs: groups, tables beside checkpoints, code of others.
RAY_CASES = ("groups", "density, sent", "models of others")
EVERY = [("parallel", case) for case in CASES] + [
    pytest.param("ray", case, marks=[pytest.mark.slow, pytest.mark.xdist_group("ray")]) for case in RAY_CASES
]


def run(wanted: Experiment, make: Make) -> dict[str, Any]:
    """Return everything that a run decides, also at edges where nothing is exchanged."""
    ensemble, taken, losses = assemble(wanted), 0, list[Tensor]()

    def progress(client_steps: int) -> None:
        nonlocal taken
        taken += client_steps

    steps = ensemble.resolved.experiment.training.steps
    with one_thread(), contextlib.closing(make(ensemble, ResolvedOptions())) as engine:
        engine.exchange(step=0)
        for window in windows(0, steps, ensemble.resolved.exchange_steps, ensemble.resolved.averaging_steps, [3, 7]):
            trained = engine.train(window, progress)
            assert trained.values.shape == (wanted.clients, window.stop - window.start, len(trained.terms))
            losses.append(trained.values)
            engine.exchange(window.stop)
        states, snapshots = engine.states(())
        scores = [vars(own) for part in range(len(ensemble.parts)) for own in engine.scores(part)]
        start = max((step for step in ensemble.resolved.exchange_steps if step < steps), default=steps - 1)
        taught = engine.taught(start, steps)
        engine.fetch_clients()
    return {
        "losses": losses,
        "terms": trained.terms,
        "taken": taken,
        "states": [vars(state) for state in states],
        "snapshots": snapshots,
        "scores": scores,
        "taught": taught and vars(taught),
        "home": [[c.state.values, c.momentum, c.memory, c.bytes_received] for c in ensemble.clients],
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for key in one:
        assert same(one[key], other[key]), key


@pytest.mark.parametrize(("engine", "case"), EVERY)
def test_an_engine_equals_the_plain_loop(engine: str, case: str, request: pytest.FixtureRequest) -> None:
    if engine == "ray":
        request.getfixturevalue("ray_here")
    found = run(experiment(case), ENGINES[engine])
    assert found["taken"] == 12 * experiment(case).clients
    assert_same(found, run(experiment(case), ENGINES["plain"]))


def test_every_engine_is_tested() -> None:
    assert {"plain"} | {made[0] for made in EVERY if isinstance(made, tuple)} | {"ray", "cuda"} >= set(ENGINES)


@pytest.mark.slow
def test_workers_that_begin_with_nothing() -> None:
    """Workers can be spawned where a process cannot be forked."""
    found = run(experiment("groups"), lambda ensemble, options: ParallelEngine(ensemble, options, start="spawn"))
    assert_same(found, run(experiment("groups"), ENGINES["plain"]))


def test_the_reference_takes_one_client_after_another(tiny: Experiment) -> None:
    """The plain engine does the same as a loop over `client.step`."""
    ensemble, by_hand = assemble(tiny), assemble(tiny)
    for e in (ensemble, by_hand):
        exchange(e, step=0)
    losses = PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(0, 3), lambda _: None)
    from manyheads.client.client import learning_rate

    for number, client in enumerate(by_hand.clients):
        batches = client.batches(0, 3, by_hand.resolved.algorithm.plan(client, 0, 3))
        for step in range(3):
            rate = learning_rate(tiny.training, step)
            _, values = client.step(by_hand.resolved.algorithm.losses, batches.at(step), step, rate)
            assert torch.equal(values, losses.values[number, step])

"""The rolling pool and the snapshots in it."""

from collections import Counter
from typing import Any

import pytest
import torch

from manyheads import Experiment
from manyheads.engine.plain import exchange
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.exchange.pool import Pool
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.setup.build import Ensemble, assemble


def fake(client: int, step: int) -> Any:
    return WeightsSnapshot(client, step, torch.zeros(1), {}, None, 1, CONFIDENCES["entropy"], {})  # type: ignore[arg-type]


def test_it_fills_and_then_replaces_random_entries() -> None:
    replaced: Counter[int] = Counter()
    pool = Pool(4)
    for step in range(4):
        pool.add(fake(0, step), seed=0, client=0, step=step)
        assert len(pool) == step + 1
    for step in range(4, 2_004):
        before = list(pool.entries)
        pool.add(fake(1, step), seed=0, client=0, step=step)
        changed = [k for k in range(4) if pool.entries[k] is not before[k]]
        assert len(changed) == 1
        replaced[changed[0]] += 1
    assert len(pool) == 4
    assert len(replaced) == 4
    assert min(replaced.values()) > 420


def test_newer_answers_replace_entries_of_the_same_origin_in_time_that_grows_with_their_number() -> None:
    pool = Pool(20_000, [fake(0, step % 100) for step in range(20_000)])
    newer = [fake(0, step) for step in range(50, 150)]
    pool.refresh(newer * 200)
    assert all((entry in newer) == (entry.step >= 50) for entry in pool.entries[:200])
    assert [entry.step for entry in pool.entries] == [step % 100 for step in range(20_000)]


def test_targets_are_drawn_without_replacement() -> None:
    pool = Pool(5, [fake(0, entry) for entry in range(5)])
    drawn = [pool.draw(3, seed=0, client=2, step=step) for step in range(2_000)]
    assert all(len(set(entries)) == 3 for entries in drawn)
    counts = Counter(entry for entries in drawn for entry in entries)
    assert len(counts) == 5
    assert min(counts.values()) > 1_100
    assert drawn[17] == pool.draw(3, seed=0, client=2, step=17)
    assert Pool(5, pool.entries[:2]).draw(3, 0, 0, 0) in ([0, 1], [1, 0])
    assert Pool(5).draw(3, 0, 0, 0) == []


def run_exchanges(experiment: Experiment, count: int) -> Ensemble:
    ensemble = assemble(experiment.with_values(training={"steps": 10_000}))
    for step in sorted(ensemble.resolved.exchange_steps)[:count]:
        exchange(ensemble, step)
    return ensemble


def test_a_snapshot_is_in_memory_once_however_many_pools_hold_it(tiny: Experiment) -> None:
    experiment = tiny.with_values(clients=6, algorithm={"pool_size": 6})
    for count in (1, 20):
        ensemble = run_exchanges(experiment, count)
        entries = [snapshot for client in ensemble.clients for snapshot in client.pool.entries]
        distinct = {(snapshot.client, snapshot.step) for snapshot in entries}
        memory = {snapshot.values.data_ptr() for snapshot in entries if isinstance(snapshot, WeightsSnapshot)}
        assert len(entries) == 36
        assert len(memory) == len(distinct) < 36
    assert len(run_exchanges(experiment, 1).clients[0].pool) == 6


def test_the_initial_pool_holds_every_neighbour(tiny: Experiment) -> None:
    ensemble = run_exchanges(tiny.with_values(clients=4, algorithm={"pool_size": 7}), 1)
    for client in ensemble.clients:
        shown = Counter(snapshot.client for snapshot in client.pool.entries)
        assert set(shown) == set(range(4)) - {client.index}
        assert max(shown.values()) - min(shown.values()) <= 1
        assert client.bytes_received == 3 * client.snapshot(0).nbytes


def test_an_empty_pool_grows(tiny: Experiment) -> None:
    experiment = tiny.with_values(algorithm={"pool_start": "empty"})
    sizes = [len(run_exchanges(experiment, count).clients[0].pool) for count in (0, 1, 2, 3, 4)]
    assert sizes == [0, 1, 2, 3, 3]


def test_every_neighbour_is_asked_in_time(tiny: Experiment) -> None:
    experiment = tiny.with_values(clients=5, algorithm={"pool_start": "empty", "pool_size": 60})
    for client in run_exchanges(experiment, 60).clients:
        asked = Counter(snapshot.client for snapshot in client.pool.entries)
        assert set(asked) == set(range(5)) - {client.index}
        assert min(asked.values()) >= 5


def test_a_snapshot_does_not_move_with_its_client(tiny: Experiment) -> None:
    ensemble = run_exchanges(tiny, 1)
    student, teacher = ensemble.clients[0], ensemble.clients[1]
    snapshot = next(s for s in student.pool.entries if s.client == 1)
    rows = student.batches(0, 1, ensemble.resolved.algorithm.plan(student, 0, 1)).at(0).public
    assert rows is not None
    before = snapshot.outputs(rows)
    teacher.state.values.add_(1.0)
    after = snapshot.outputs(rows)
    assert torch.equal(before.probabilities_BHC, after.probabilities_BHC)
    assert before.probabilities_BHC.sum(-1).allclose(torch.tensor(1.0))
    assert not before.probabilities_BHC.requires_grad


def test_a_snapshot_answers_in_evaluation_mode(tiny: Experiment) -> None:
    """The answer about a sample does not depend on the rest of the batch, and asking changes nothing."""
    ensemble = run_exchanges(tiny, 1)
    client = ensemble.clients[0]
    snapshot = client.snapshot(0)
    rows = client.batches(0, 1, ensemble.resolved.algorithm.plan(client, 0, 1)).at(0).public
    assert rows is not None
    whole = snapshot.outputs(rows).probabilities_BHC
    one = snapshot.outputs(type(rows)(rows.samples[:1], rows.view_numbers[:1], rows.images[:1])).probabilities_BHC
    torch.testing.assert_close(whole[:1], one)
    assert int(client.state.integers["backbone.1.num_batches_tracked"]) == 0


@pytest.mark.parametrize("targets", [1, 2, 3])
def test_plans_draw_as_many_targets_as_asked(tiny: Experiment, targets: int) -> None:
    ensemble = run_exchanges(tiny.with_values(algorithm={"targets_per_step": targets}), 1)
    assert ensemble.resolved.algorithm.plan(ensemble.clients[0], 5, 9).targets_per_step == targets

"""Groups: one node of the graph that averages within and distils without."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyheads import ConfigurationError, Experiment, resume, train
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.errors import Interrupted
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.resolve import resolve
from tests.contracts import stored_images, train_by_hand, weights
from tests.runs.conftest import StopAt

GROUPS = [[2, 0], [1, 3, 4]]


def grouped(tiny: Experiment, knobs: dict[str, Any] | None = None, **values: Any) -> Experiment:
    """Return five clients in two groups; members average every 3 steps, groups meet every 4."""
    algorithm = {"average_every": 3, "pool_every": 4, **(knobs or {})}
    short = {"steps": 10, "log_every": 100}
    return tiny.with_values(clients=5, groups=GROUPS, algorithm=algorithm, training=short).with_values(**values)


def train_step(ensemble: Ensemble, step: int) -> None:
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(step, step + 1), lambda _: None)


def values(ensemble: Ensemble, group: tuple[int, ...]) -> list[Tensor]:
    return [ensemble.clients[member].state.values for member in group]


def test_members_average_when_they_are_due_and_only_then(tiny: Experiment) -> None:
    ensemble = assemble(grouped(tiny))
    assert ensemble.resolved.groups == ((0, 2), (1, 3, 4))
    exchange(ensemble, step=0)
    equal_at = []
    for step in range(1, 11):
        train_step(ensemble, step - 1)
        exchange(ensemble, step)
        equal = {
            all(torch.equal(own, values(ensemble, group)[0]) for own in values(ensemble, group))
            for group in ensemble.resolved.groups
        }
        assert len(equal) == 1, "all groups average at the same steps"
        equal_at += [step] if equal.pop() else []
    assert equal_at == [3, 4, 6, 8, 9, 10]  # every 3 steps, before an exchange, at the end


def test_the_mean_is_weighted_by_samples_and_momentum_stays(tiny: Experiment) -> None:
    ensemble = assemble(grouped(tiny))
    exchange(ensemble, step=0)
    for step in range(3):
        train_step(ensemble, step)
    before = [client.state.values.double() for client in ensemble.clients]
    momentum = [client.momentum.clone() for client in ensemble.clients]
    exchange(ensemble, step=3)
    for group in ensemble.resolved.groups:
        shares = [len(ensemble.clients[member].private) for member in group]
        parts = [before[member] * share / sum(shares) for member, share in zip(group, shares, strict=True)]
        for own in values(ensemble, group):
            torch.testing.assert_close(own.double(), torch.stack(parts).sum(0), rtol=1e-5, atol=1e-7)
    assert not torch.equal(ensemble.clients[0].state.values, ensemble.clients[1].state.values)
    assert all(torch.equal(client.momentum, own) for client, own in zip(ensemble.clients, momentum, strict=True))


def test_members_start_as_equals_and_share_one_pool(tiny: Experiment) -> None:
    ensemble = assemble(grouped(tiny))
    for group in ensemble.resolved.groups:
        first = ensemble.clients[group[0]]
        for member in group:
            assert ensemble.clients[member].pool is first.pool
            assert torch.equal(ensemble.clients[member].state.values, first.state.values)
    assert ensemble.clients[0].pool is not ensemble.clients[1].pool
    assert not torch.equal(ensemble.clients[0].state.values, ensemble.clients[1].state.values)


def test_what_a_group_shows_is_its_mean(tiny: Experiment) -> None:
    ensemble = assemble(grouped(tiny, {"pool_size": 1}))
    exchange(ensemble, step=0)
    for step in range(4):
        train_step(ensemble, step)
    exchange(ensemble, step=4)  # averages first
    for own, other in (((0, 2), (1, 3, 4)), ((1, 3, 4), (0, 2))):
        (entry,) = ensemble.clients[own[0]].pool.entries
        assert isinstance(entry, WeightsSnapshot)
        assert entry.step == 4
        assert entry.client in other
        assert all(torch.equal(entry.values, theirs) for theirs in values(ensemble, other))


def test_the_graph_connects_groups(tiny: Experiment) -> None:
    """A cycle of three groups: the first learns from the second only."""
    cycle = grouped(tiny, groups=[[4], [0, 1], [2, 3]], graph={"name": "cycle"})
    ensemble = assemble(cycle)
    train_by_hand(ensemble)
    heard = [{entry.client for entry in client.pool.entries} for client in ensemble.clients]
    assert heard == [{2}, {2}, {4}, {4}, {0}]
    hops = ensemble.resolved.hops(10)
    assert hops[4] == [1, 1, 2, 2, 0]
    assert hops[0] == [0, 0, 1, 1, 2]
    summary = train(cycle).summary
    assert list(summary["by_hop"]) == ["0", "1", "2"]


def test_a_change_in_a_member_reaches_its_group_first(tiny: Experiment) -> None:
    """A member learns of it by averaging at step 3; the other group at step 4."""
    usual, changed = assemble(grouped(tiny)), assemble(grouped(tiny))
    own = torch.from_numpy(changed.resolved.split.private[2])
    images = stored_images(changed.clients[2].private)
    images[own] = 255 - images[own]
    reached = {1: {2}, 2: {2}, 3: {0, 2}, 4: {0, 2}, 8: {0, 1, 2, 3, 4}}
    for ensemble in (usual, changed):
        exchange(ensemble, step=0)
    for step in range(1, 9):
        for ensemble in (usual, changed):
            train_step(ensemble, step - 1)
            exchange(ensemble, step)
        pairs = zip(weights(usual), weights(changed), strict=True)
        if step in reached:
            assert {client for client, (one, other) in enumerate(pairs) if one != other} == reached[step]


def test_every_client_in_a_group_of_its_own_is_as_without_groups(tiny: Experiment) -> None:
    alone, without = (assemble(tiny.with_values(groups=groups)) for groups in ([[0], [1], [2]], []))
    assert torch.equal(train_by_hand(alone), train_by_hand(without))
    assert weights(alone) == weights(without)
    assert [c.bytes_received for c in alone.clients] == [c.bytes_received for c in without.clients]


def test_a_run_ends_averaged_and_continues_after_a_stop(tiny: Experiment, tmp_path: Path) -> None:
    """Members may differ at step 5, between an exchange and the next averaging; that is saved, too."""
    experiment = grouped(tiny, training={"log_every": 5})
    expected = train(experiment)
    final = [client.state.values for client in expected.clients]
    assert torch.equal(final[0], final[2])
    assert torch.equal(final[1], final[3])
    assert not torch.equal(final[0], final[1])
    with pytest.raises(Interrupted, match="stopped at step 5"):
        train(experiment, tmp_path / "run", observer=StopAt(26))
    resumed = resume(tmp_path / "run")
    assert all(torch.equal(c.state.values, own) for c, own in zip(resumed.clients, final, strict=True))
    assert resumed.summary["bytes_received"] == expected.summary["bytes_received"]


def test_each_member_receives_a_mean_and_one_of_them_what_the_group_hears(tiny: Experiment) -> None:
    ensemble = assemble(grouped(tiny))
    train_by_hand(ensemble)
    size = ensemble.clients[0].snapshot(0).nbytes
    received = [client.bytes_received // size for client in ensemble.clients]
    assert received == [6 + 3, 6 + 3, 6, 6, 6]  # averaged at 3, 4, 6, 8, 9, 10; met others at 0, 4, 8
    assert sum(client.bytes_received for client in ensemble.clients) == size * sum(received)


@pytest.mark.parametrize("whole", [False, True])
def test_groups_learn_from_tables_too(tiny: Experiment, whole: bool) -> None:
    """Every member learns the same from what the group was sent as from weights."""
    data = {"public_fraction": 0.04} if whole else {}
    experiment = grouped(tiny, {"top_k": 10, "precision": "float32"}, data=data)
    tables = assemble(experiment.with_values(algorithm={"exchange": "predictions"}))
    known = tables.clients[0].schema
    assert known is not None
    if whole:
        assert known.whole
    torch.testing.assert_close(train_by_hand(tables), train_by_hand(assemble(experiment)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"groups": [[0, 1], [2, 3]]}, "groups: each of the clients 0 to 4 must be in exactly one group, none empty"),
        ({"groups": [[0, 1, 2], [2, 3, 4]]}, "groups: each of the clients 0 to 4 must be in exactly one group"),
        ({"groups": [[0, 1, 1], [2, 3, 4]]}, "groups: each of the clients 0 to 4 must be in exactly one group"),
        ({"groups": [[0, 1, 2], [3, 4, 5]]}, "groups: each of the clients 0 to 4 must be in exactly one group"),
        ({"groups": [[0, 1, 2], [3, 4], []]}, "none empty"),
        ({"groups": [[0, 1, 2, 3, 4]]}, 'groups: one group only: algorithm.name = "mhd" needs at least 2 groups'),
        ({"groups": [["0"], [1, 2, 3, 4]]}, "groups.0.0"),
        ({"algorithm": {"name": "separate"}}, 'groups: algorithm.name = "separate" has no groups'),
        ({"algorithm": {"name": "averaging"}}, 'groups: algorithm.name = "averaging" has no groups'),
        ({"algorithm": {"name": "fedmd"}}, 'groups: algorithm.name = "fedmd" has no groups'),
        ({"algorithm": {"confidence": "density"}}, 'groups: algorithm.confidence = "density"'),
        ({"algorithm": {"average_every": 0}}, "algorithm.average_every = 0"),
        (
            {"model": {"backbone": ["cnn", "cnn", "resnet8", "cnn", "cnn"]}},
            "groups: the weights of client 0 (cnn, width 4) and client 2 (resnet8, width 4) cannot be averaged",
        ),
        (
            {"model": {"width": [4, 4, 4, 6, 4]}},
            "groups: the weights of client 1 (cnn, width 4) and client 3 (cnn, width 6) cannot be averaged",
        ),
        ({"graph": {"name": "edges", "edges": [[0, 1], [1, 2]]}}, "graph.edges: group 2 does not exist (groups = 2"),
        ({"graph": {"name": "edges", "edges": [[0, 1]]}}, "group 1 has nobody to learn from"),
        ({"graph": {"name": "random_regular", "degree": 2}}, "no such graph on 2 groups"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_one_line(tiny: Experiment, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve(grouped(tiny, **{k: v for k, v in changed.items() if k != "algorithm"}).with_values(**changed))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_different_models_in_different_groups_are_fine(tiny: Experiment) -> None:
    model = {"backbone": ["cnn", "resnet8", "cnn", "resnet8", "resnet8"], "width": [4, 3, 4, 3, 3]}
    ensemble = assemble(grouped(tiny, model=model))
    assert train_by_hand(ensemble).isfinite().all()
    assert torch.equal(*values(ensemble, (0, 2)))
    assert list(ensemble.clients[0].model.maps) == [str(ensemble.resolved.embedding_widths[1])]

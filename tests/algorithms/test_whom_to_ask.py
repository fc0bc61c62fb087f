"""Whom a client asks about a sample: choices by hand, what is kept, and answers put together from several."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from manyheads import Experiment
from manyheads.algorithms import whom_to_ask
from manyheads.algorithms.mhd import MHD
from manyheads.client.client import Client
from manyheads.data.batches import Rows, Samples
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.exchange.by_sample import ask_by_sample
from manyheads.outputs import Outputs
from manyheads.setup.build import Ensemble, assemble

SURE = [[0.9, 0.2, 0.5], [0.1, 0.8, 0.3], [-1.0, 0.7, 0.6], [0.4, -1.0, -1.0]]  # of four samples, three clients
POOL = [(0, 5), (2, 10), (1, 5), (2, 15)]  # owner and step
REPEATED = {"public_fraction": 0.04}  # a few samples, which come up again and again


def public(tiny: Experiment) -> Samples:
    own = assemble(tiny.with_values(data=REPEATED)).clients[0].public
    assert own is not None
    return own


def kept(samples: Samples, sure: list[list[float]] = SURE) -> dict[str, Tensor]:
    """Return a memory in which the first samples of the public set are known, and nobody was asked of the others."""
    memory: dict[str, Tensor] = {}
    whom_to_ask.begin(memory, samples, 3, torch.device("cpu"))
    memory[whom_to_ask.BEFORE][: len(sure)] = torch.tensor(sure)
    return memory


def chosen(
    samples: Samples, targets: int, times: int = 400, pool: list[tuple[int, int]] = POOL, first: int = 0
) -> np.ndarray[Any, Any]:
    """Return what is chosen for the first four samples in many steps: steps x targets x samples."""
    four = np.tile(np.sort(samples.indices)[:4], (times, 1))
    steps = range(first, first + times)
    return whom_to_ask.choose(kept(samples), samples, four, pool, targets, seed=0, client=1, steps=steps)


def share(entries: np.ndarray[Any, Any], entry: int) -> float:
    return float((entries == entry).mean())


def test_the_surest_is_asked_and_of_its_snapshots_the_newest(tiny: Experiment) -> None:
    first = chosen(public(tiny), 1)[:, 0]
    usual = 1.0 - whom_to_ask.ANYBODY + whom_to_ask.ANYBODY / len(POOL)
    assert share(first[:, 0], 0) == pytest.approx(usual, abs=0.05)  # client 0 is the surest of the first sample
    assert share(first[:, 1], 2) == pytest.approx(usual, abs=0.05)  # client 1 of the second
    second = chosen(public(tiny), 2)[:, 1]
    assert share(second[:, 1], 3) == pytest.approx(usual, abs=0.05)  # then client 2, with its newest entry
    assert not (chosen(public(tiny), 3) == 1).any()  # three targets are three owners, not an older entry of one
    assert (chosen(public(tiny), 4)[:, 3] == 1).all()


def test_ties_go_to_anybody(tiny: Experiment) -> None:
    samples = public(tiny)
    memory = kept(samples, [[0.0, 0.0, 0.0]])
    one = np.tile(np.sort(samples.indices)[:1], (600, 1))
    entries = whom_to_ask.choose(memory, samples, one, POOL, 1, seed=0, client=1, steps=range(600))
    for entry in (0, 2, 3):
        assert share(entries, entry) == pytest.approx(1 / 3, abs=0.07)


def test_who_else_is_in_the_pool_changes_no_draw(tiny: Experiment) -> None:
    """If an answer is refused an older entry stays: samples that ask others still ask the same."""
    newer, older = chosen(public(tiny), 1)[:, 0], chosen(public(tiny), 1, pool=[*POOL[:3], (2, 1)])[:, 0]
    assert (newer == np.where(older == 1, 3, older)).all()  # the newest entry of client 2 is another one now


def test_who_was_never_asked_comes_first(tiny: Experiment) -> None:
    first = chosen(public(tiny), 1)[:, 0]
    assert share(first[:, 2], 0) > 0.9  # of the third sample client 0 alone
    assert share(first[:, 3], 0) < 0.1  # of the last the two others, each as often
    for entry in (2, 3):
        assert share(first[:, 3], entry) == pytest.approx(1 / 2, abs=0.1)


def test_targets_differ_and_all_teach_if_there_are_fewer(tiny: Experiment) -> None:
    every = chosen(public(tiny), 9, times=50)
    assert every.shape == (50, 4, 4)
    assert (np.sort(every, axis=1) == np.arange(4)[:, None]).all()
    assert chosen(public(tiny), 2, times=3, pool=[]).shape == (3, 0, 4)


def test_a_choice_depends_on_its_step_alone(tiny: Experiment) -> None:
    samples = public(tiny)
    together = chosen(samples, 2, times=10)
    apart = [chosen(samples, 2, times=times, first=first) for first, times in ((0, 3), (3, 1), (4, 6))]
    assert (together == np.concatenate(apart)).all()
    assert not (together[:5] == together[5:]).all()


def test_what_was_heard_counts_from_the_next_exchange_on(tiny: Experiment) -> None:
    samples = public(tiny)
    memory = kept(samples)
    before = memory[whom_to_ask.BEFORE].clone()
    asked = torch.from_numpy(np.sort(samples.indices)[[0, 3, 0]])  # a sample that is twice in a batch
    sure = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    whom_to_ask.note(memory, samples, asked, torch.tensor([1, 2, 1]), sure)
    lately = memory[whom_to_ask.LATELY]
    assert lately[0].tolist() == [-1.0, 0.75, -1.0]
    assert lately[3].tolist() == [-1.0, -1.0, 0.5]
    assert torch.equal(memory[whom_to_ask.BEFORE], before)
    silent = torch.tensor([False, False, True])
    whom_to_ask.note(memory, samples, asked[[0, 1, 1]], torch.tensor([1, 0, 2]), 0.0 * sure + 0.1, silent)
    assert lately[0].tolist() == [-1.0, 0.75, -1.0]  # it did not answer, and was sure before
    assert lately[3].tolist() == [0.0, -1.0, pytest.approx(0.1)]  # whoever never answered does not come first for ever
    whom_to_ask.take_in(memory)
    assert torch.equal(memory[whom_to_ask.BEFORE], lately)
    assert memory[whom_to_ask.BEFORE] is not lately


def test_a_sample_that_is_twice_in_a_batch_is_kept_once_in_whatever_order_it_is_written(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU writes in any order; here, from the last to the first."""
    write = Tensor.index_copy_

    def backwards(into: Tensor, dim: int, places: Tensor, values: Tensor) -> Tensor:
        return write(into, dim, places.flip(0), values.flip(0))

    samples = public(tiny)
    memory = kept(samples)
    monkeypatch.setattr(Tensor, "index_copy_", backwards)
    twice = torch.from_numpy(np.sort(samples.indices)[[0, 3, 0]])
    whom_to_ask.note(memory, samples, twice, torch.tensor([1, 2, 1]), torch.tensor([0.25, 0.5, 0.75]))
    assert memory[whom_to_ask.LATELY][0].tolist() == [-1.0, 0.75, -1.0]


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), -1.0])
def test_odd_confidences_can_be_saved_and_are_no_first_choice(odd: float, tiny: Experiment) -> None:
    samples = public(tiny)
    memory = kept(samples)
    asked = torch.from_numpy(np.sort(samples.indices)[:1])
    whom_to_ask.note(memory, samples, asked, torch.tensor([1]), torch.tensor([odd]))
    assert whom_to_ask.fits(memory, len(samples), 3)
    assert 0.0 <= memory[whom_to_ask.LATELY][0, 1] < whom_to_ask.FIRST


class Said:
    """A snapshot that says what it was made with, row by row."""

    step, source = 0, None

    def __init__(self, client: int, width: int | None, silent: bool = False, confident: bool = False) -> None:
        self.client, self._width, self._silent, self._confident = client, width, silent, confident
        self.asked: list[list[int]] = []

    def outputs(self, rows: Rows) -> Outputs:
        self.asked.append(rows.samples.tolist())
        value_B = 10.0 * self.client + rows.samples.to(torch.float64)
        return Outputs(
            value_B[:, None, None].expand(-1, 2, 3),
            None if self._width is None else value_B[:, None].expand(-1, self._width),
            value_B[:, None].expand(-1, 2) if self._confident else None,
            torch.zeros(len(value_B), dtype=torch.bool) if self._silent else None,
        )


def test_each_snapshot_is_asked_once_about_its_own_samples() -> None:
    entries = [Said(0, 4, confident=True), Said(1, 4, confident=True), Said(2, 6, confident=True)]
    rows = Rows(torch.arange(6), torch.zeros(6, dtype=torch.int64), torch.zeros(6, 1, 2, 2, dtype=torch.float64))
    found = ask_by_sample(entries, np.array([1, 0, 1, 2, 0, 1]), rows)  # type: ignore[arg-type]
    assert [entry.asked for entry in entries] == [[[1, 4]], [[0, 2, 5]], [[3]]]
    expected = torch.tensor([10.0, 1.0, 12.0, 23.0, 4.0, 15.0], dtype=torch.float64)
    assert torch.equal(found.outputs.probabilities_BHC[:, 1, 2], expected)
    assert found.outputs.confidence_BH is not None
    assert torch.equal(found.outputs.confidence_BH[:, 0], expected)
    assert found.outputs.known_B is None
    assert {width: of.tolist() for width, of in found.has_width_B.items()} == {
        4: [True, True, True, False, True, True],
        6: [False, False, False, True, False, False],
    }
    assert torch.equal(found.embedding_BE[4][:, 3], expected * found.has_width_B[4])


def test_a_silent_teacher_covers_nothing_and_sends_nothing() -> None:
    entries = [Said(0, None), Said(1, 4, silent=True)]
    rows = Rows(torch.arange(3), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 1, 2, 2, dtype=torch.float64))
    found = ask_by_sample(entries, np.array([1, 0, 1]), rows)  # type: ignore[arg-type]
    assert found.outputs.known_B is not None
    assert found.outputs.known_B.tolist() == [False, True, False]
    assert found.has_width_B[4].tolist() == [False] * 3


def started(tiny: Experiment, **knobs: Any) -> tuple[Ensemble, MHD]:
    wanted = tiny.with_values(algorithm={"ask": "surest", "pool_size": 3, "pool_every": 4, **knobs}, data=REPEATED)
    ensemble = assemble(wanted)
    assert isinstance(ensemble.resolved.algorithm, MHD)
    exchange(ensemble, step=0)
    return ensemble, ensemble.resolved.algorithm


def take(ensemble: Ensemble, start: int, stop: int) -> None:
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(start, stop), lambda _: None)


def asked_of(client: Client) -> Tensor:
    return client.memory[whom_to_ask.LATELY] >= 0.0


@pytest.mark.parametrize("exchanged", ["weights", "predictions"])
def test_a_client_keeps_how_sure_those_were_whom_it_asked(tiny: Experiment, exchanged: str) -> None:
    ensemble, algorithm = started(tiny, exchange=exchanged, confidence="max_probability")
    take(ensemble, 0, 4)
    client = ensemble.clients[0]
    plan, batches = algorithm.plan(client, 0, 4), client.batches(0, 4, algorithm.plan(client, 0, 4))
    assert client.public is not None
    expected = torch.full_like(client.memory[whom_to_ask.LATELY], whom_to_ask.NEVER_ASKED)
    for step in range(4):
        batch = batches.at(step)
        for place, sample in enumerate(batch.public.samples.tolist()):
            entry = client.pool.entries[plan.targets[step, 0, place]]  # type: ignore[index]
            one = Rows(*(of[place : place + 1] for of in vars(batch.public).values()))
            row = int(client.public.places(torch.tensor([sample])))
            expected[row, entry.client] = entry.outputs(one).probabilities_BHC[0, 0].max()
    torch.testing.assert_close(client.memory[whom_to_ask.LATELY], expected)
    assert not asked_of(client)[:, client.index].any(), "nobody asks itself"
    assert asked_of(client).any()


def test_later_windows_ask_those_who_were_sure(tiny: Experiment) -> None:
    ensemble, algorithm = started(tiny)
    client, steps = ensemble.clients[0], 40
    for start in range(0, steps, 4):
        take(ensemble, start, start + 4)
        exchange(ensemble, start + 4)
    assert client.public is not None
    plan = algorithm.plan(client, steps, steps + 4)
    samples_SB = client.public.drawn(steps, steps + 4, client.training.public_batch_size)[0]
    places = client.public.places(torch.from_numpy(samples_SB.ravel()))
    owners = torch.tensor([entry.client for entry in client.pool.entries])
    sure = client.memory[whom_to_ask.BEFORE][places][:, owners]
    assert (sure >= 0.0).all(), "forty steps are not enough to ask everybody"
    assert plan.targets is not None
    asked = torch.from_numpy(plan.targets[:, 0].ravel())
    best = sure.gather(1, asked[:, None])[:, 0] == sure.amax(1)
    assert best.double().mean() > 0.85
    assert best.double().mean() < 1.0


def test_nobody_is_told_whom_a_client_asks(tiny: Experiment) -> None:
    ensemble, _ = started(tiny)
    take(ensemble, 0, 4)
    assert not [name for name in ensemble.clients[0].snapshot(4).tensors() if "sure" in name]


@pytest.mark.parametrize("remember", [0.0, 0.5])
def test_what_is_kept_is_counted_to_the_byte(tiny: Experiment, remember: float) -> None:
    ensemble, algorithm = started(tiny, select="mixture", remember=remember, confidence="max_probability")
    take(ensemble, 0, 1)
    client = ensemble.clients[0]
    assert client.public is not None
    heads, classes = client.model.shape_HC
    needed = algorithm.remembered_bytes(len(client.public), heads, classes)
    needed += algorithm.kept_about_others_bytes(len(client.public), client.clients)
    assert needed == sum(tensor.nbytes for tensor in client.memory.values())


def test_the_rows_that_are_asked_for_are_those_that_are_due(tiny: Experiment) -> None:
    """With one target no row is asked of two snapshots, and every row that is read was asked for."""
    knobs = {"ask": "surest", "exchange": "predictions", "pool_size": 3, "pool_every": 4}
    ensemble = assemble(tiny.with_values(algorithm=knobs, data={"public_fraction": 0.3}))
    algorithm = ensemble.resolved.algorithm
    for start in (0, 4):
        exchange(ensemble, start)
        for client in ensemble.clients:
            assert client.schema is not None
            assert not client.schema.whole
            entries = {(entry.client, entry.step): entry for entry in client.pool.entries}.values()
            answered = sum(int((entry._row_PV >= 0).sum()) for entry in entries if hasattr(entry, "_row_PV"))
            assert 0 < answered <= 4 * client.training.public_batch_size
            batches = client.batches(start, start + 4, algorithm.plan(client, start, start + 4))
            for step in range(start, start + 4):
                assert all(outputs.known_B is None for outputs in batches.at(step).foreign)
        take(ensemble, start, start + 4)

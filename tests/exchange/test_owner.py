"""The owner of a client's snapshots: what it answers and keeps, and what becomes of answers that are refused."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads import ConfigurationError, Experiment, Interrupted, resume, train
from manyheads.engine.plain import exchange
from manyheads.errors import SnapshotError
from manyheads.exchange.owner import Owner
from manyheads.exchange.received import PlaceholderSnapshot
from manyheads.exchange.request import NO_ROWS, PublicRows, Request
from manyheads.exchange.transport import Answer
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.setup.build import assemble
from manyheads.training.observer import SilentObserver
from tests.contracts import train_by_hand
from tests.runs.conftest import StopAt

SOME = PublicRows(((np.arange(5), 0), (np.array([1, 7]), 2)))


def by_rows(tiny: Experiment, **values: Any) -> Experiment:
    """Return an experiment whose tables hold only the rows that are due: with so many views none could hold all."""
    views = {"augment": "crop-flip", "public_views": 50}
    return tiny.with_values(algorithm={"exchange": "predictions"}, data=views).with_values(**values)


@given(rows=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=40))
def test_rows_travel_as_they_are(rows: list[tuple[int, int]]) -> None:
    given_rows = np.array(rows, dtype=np.int64).reshape(-1, 2)
    made = PublicRows.of(given_rows[:, 0], given_rows[:, 1])
    assert len(made) == len(set(rows))
    arrived = pickle.loads(pickle.dumps(made))  # noqa: S301 - made here
    assert arrived.digest == made.digest
    assert {(int(at), view) for positions, view in arrived for at in positions} == set(rows)


def test_a_request_is_small_beside_its_answer() -> None:
    few = np.unique(np.random.default_rng(0).integers(45_000, size=1_664))
    assert len(pickle.dumps(PublicRows(((few, 3),)))) < 1.6 * len(few)


def test_an_owner_keeps_what_askers_want_kept_and_drops_the_rest(tiny: Experiment) -> None:
    client = assemble(by_rows(tiny)).clients[0]
    owner = client.owner

    def ask(asker: int, step: int, *keep: int, rows: PublicRows = SOME) -> Answer:
        return owner.answer(Request(asker, 0, step, rows, keep))

    owner.begin_exchange(0)
    first = ask(1, 0, 0)
    assert first == ask(2, 0)  # asked once more, answered once; and the second asker will not come back to it
    owner.end_exchange()
    assert set(owner.kept) == {0}
    client.state.values.add_(0.1)
    owner.begin_exchange(4)
    assert ask(1, 0, 0, 4) == first, "an earlier snapshot answers as it was"
    assert ask(2, 4, 4) != first
    owner.end_exchange()
    assert set(owner.kept) == {0, 4}
    owner.begin_exchange(8)
    assert ask(1, 8, rows=NO_ROWS) == b""
    owner.end_exchange()
    assert set(owner.kept) == {4}, "asker 2 was not heard of, and still holds it"
    with pytest.raises(SnapshotError, match=r"client 0: no longer keeps its snapshot of step 0"):
        ask(1, 0)


def test_to_release_and_to_keep_without_rows_are_different_requests(tiny: Experiment) -> None:
    """Both requests name no rows and the same step."""
    owner = assemble(by_rows(tiny)).clients[0].owner
    owner.begin_exchange(4)
    for asker, held in ((1, ()), (2, (4,))):
        assert owner.answer(Request(asker, 0, 4, NO_ROWS, held)) == b""
    owner.end_exchange()
    assert set(owner.kept) == {4}


def test_nobody_asks_for_what_was_dropped(tiny: Experiment) -> None:
    """Many exchanges fill large pools: most entries are not drawn in a window, and owners come and go."""
    knobs = {"pool_size": 4, "pool_every": 2, "nu_emb": 0.0}
    ensemble = assemble(by_rows(tiny, clients=6, algorithm=knobs, training={"steps": 60, "public_batch_size": 2}))
    train_by_hand(ensemble)
    assert [client.refused for client in ensemble.clients] == [0] * 6
    held = {(entry.client, entry.step) for client in ensemble.clients for entry in client.pool.entries}
    assert held <= {(client.index, step) for client in ensemble.clients for step in client.owner.kept}


def test_checkpoints_are_kept_by_those_who_asked_for_them(tiny: Experiment) -> None:
    ensemble = assemble(tiny)
    exchange(ensemble, step=0)
    assert all(not client.owner.kept for client in ensemble.clients)
    assert all(isinstance(entry, WeightsSnapshot) for client in ensemble.clients for entry in client.pool.entries)


def test_pools_hold_tables_and_owners_what_answers(tiny: Experiment) -> None:
    ensemble = assemble(by_rows(tiny, algorithm={"pool_size": 2, "pool_every": 2}))
    train_by_hand(ensemble)
    held = {(entry.client, entry.step) for client in ensemble.clients for entry in client.pool.entries}
    kept = {(client.index, step) for client in ensemble.clients for step in client.owner.kept}
    assert held <= kept
    assert len(kept - held) <= len(ensemble.clients), "an owner keeps what nobody holds or just let go of"
    assert len({step for _, step in held}) > 1, "nobody was asked about an earlier snapshot"
    assert not any(isinstance(entry, WeightsSnapshot) for client in ensemble.clients for entry in client.pool.entries)


# Answers that cannot be used.


def spoil(owner: int, monkeypatch: pytest.MonkeyPatch, until: int = 10**9) -> None:
    """Let one client answer nonsense about its snapshots of steps before `until`."""
    answer = Owner.answer

    def spoiled(self: Owner, request: Request, *, encode: bool = True) -> Answer:
        made = answer(self, request, encode=encode)
        spoils = isinstance(made, bytes) and len(made) > 0 and self._client == owner and request.step < until
        return made[:-1] + b"?" if spoils and isinstance(made, bytes) else made

    monkeypatch.setattr(Owner, "answer", spoiled)


CASES: dict[str, dict[str, Any]] = {
    "whole tables": {"algorithm": {"exchange": "predictions", "pool_every": 6}, "data": {"public_fraction": 0.05}},
    "rows": {"algorithm": {"exchange": "predictions"}, "data": {"augment": "crop-flip", "public_views": 50}},
    "rows, random choice": {
        "algorithm": {"exchange": "predictions", "select": "random"},
        "data": {"augment": "crop-flip", "public_views": 50},
    },
    "rows, all teach": {
        "algorithm": {"exchange": "predictions", "select": "all"},
        "data": {"augment": "crop-flip", "public_views": 50},
    },
    "fedmd": {
        "algorithm": {"name": "fedmd", "first_private_steps": 4, "digest_steps": 4, "revisit_steps": 4},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_refused_answer_is_counted_reported_once_and_left_out(
    tiny: Experiment, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listening(SilentObserver):
        def noted(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    experiment = tiny.with_values(**CASES[case])
    spoil(1, monkeypatch)
    result = train(experiment, observer=Listening())
    assert all(client.state.values.isfinite().all() for client in result.clients)
    pools = [entry.client for client in result.clients for entry in client.pool.entries]
    assert all(isinstance(e, PlaceholderSnapshot) or e.client != 1 for c in result.clients for e in c.pool.entries)
    assert pools or case == "fedmd"
    asked = [client.index for client in result.clients if client.refused]
    said = [note for note in notes if "refused an answer and continues without it: the message was damaged" in note]
    assert len(said) == len(asked) > 0
    assert max(client.refused for client in result.clients) > 1, "more than one is told once"
    assert [told.refused for told in result.summary.clients] == [client.refused for client in result.clients]


def test_a_refused_answer_leaves_the_pool_as_it_was_and_is_saved(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The entry that it would have replaced is asked about again at the next exchange, also after a stop."""
    experiment = by_rows(tiny, algorithm={"pool_size": 2, "pool_every": 2}, training={"steps": 16})
    spoil(1, monkeypatch, until=4)
    expected = train(experiment)
    assert sum(client.refused for client in expected.clients) > 1
    with pytest.raises(Interrupted):
        train(experiment, tmp_path / "run", observer=StopAt(25))
    resumed = resume(tmp_path / "run")
    for ours, theirs in zip(resumed.clients, expected.clients, strict=True):
        assert torch.equal(ours.state.values, theirs.state.values)
        assert ours.refused == theirs.refused
    assert any(entry.client == 1 for entry in expected.clients[0].pool.entries), "later it is heard again"


def test_what_a_refused_answer_would_have_taught_is_not_learnt(tiny: Experiment) -> None:
    """The own head teaches if it is the only candidate."""
    alone = assemble(by_rows(tiny))
    exchange(alone, step=0)
    client = alone.clients[0]
    assert client.schema is not None
    client.pool.entries = [PlaceholderSnapshot(client.schema, e.client, e.step) for e in client.pool.entries]
    algorithm = alone.resolved.algorithm
    batch = client.batches(0, 1, algorithm.plan(client, 0, 1)).at(0)
    choices = algorithm.teacher_choices(client, batch)
    assert choices is not None
    assert set(choices.teacher_BK.flatten().tolist()) == {0}
    assert float(algorithm.losses(client, batch, 0)["embedding"].detach()) == 0.0


def test_an_answer_to_another_request_is_refused(tiny: Experiment) -> None:
    ensemble = assemble(by_rows(tiny))
    one, two = ensemble.clients[:2]
    one.owner.begin_exchange(0)
    request = Request(2, 0, 0, SOME)
    answer = one.owner.answer(request)
    assert one.origin.accept(request, answer).nbytes == len(answer)  # type: ignore[arg-type]
    for other in (dataclasses.replace(request, step=4), dataclasses.replace(request, owner=1)):
        with pytest.raises(SnapshotError, match=r"client 0, step 0: client \d was asked as of step \d"):
            two.origin.accept(other, answer)
    with pytest.raises(SnapshotError, match="lacks sample"):
        one.origin.accept(dataclasses.replace(request, rows=PublicRows(((np.arange(6), 0),))), answer)
    with pytest.raises(SnapshotError, match="not a message of predictions"):
        one.origin.accept(request, b"")


def test_a_pool_whose_owners_keep_it_is_saved_with_them(tiny: Experiment, tmp_path: Path) -> None:
    """The files of a save hold each checkpoint once, and no message about it."""
    folder = tmp_path / "run"
    with pytest.raises(Exception, match="stopped at step"):
        train(by_rows(tiny), folder, observer=StopAt(25))
    names = sorted(path.name for path in (folder / "checkpoints").glob("snapshot-*"))
    assert names
    for name in names:
        content = (folder / "checkpoints" / name).read_bytes()
        assert b"MHPREDICT" not in content


@pytest.mark.parametrize(
    "wrong",
    ["tests.exchange.lab:NOTHING", "tests.exchange.lab:Unfinished", "tests.exchange.lab:gone", "surest", "a.b:c"],
)
def test_what_is_not_a_confidence_is_refused(tiny: Experiment, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^algorithm\.confidence = ") as error:
        assemble(tiny.with_values(algorithm={"confidence": wrong}))
    assert "\n" not in str(error.value)


def test_a_confidence_by_import_path(tiny: Experiment) -> None:
    """A function, a class and an object work, in tables as in checkpoints."""
    short = tiny.with_values(training={"steps": 6})
    usual = train_by_hand(assemble(short))
    found = {}
    for name in ("second_guess", "Near", "NEAR"):
        ensemble = assemble(short.with_values(algorithm={"confidence": f"tests.exchange.lab:{name}"}))
        found[name] = train_by_hand(ensemble)
        assert ("near middle" in ensemble.clients[0].memory) == (name != "second_guess")
    assert torch.equal(found["Near"], found["NEAR"])
    assert not torch.equal(found["Near"], usual)
    assert not torch.equal(found["second_guess"], usual)

"""Missed candidates: samples on which a candidate was right and the chosen one was not, against loops over samples."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from manyheads import Experiment
from manyheads.algorithms.base import TeacherChoices
from manyheads.algorithms.mhd import MHD
from manyheads.client.client import Batch, Client
from manyheads.data.batches import Rows
from manyheads.engine.plain import exchange
from manyheads.evaluation.teacher_tally import TeacherTally, who_taught_whom
from manyheads.exchange.snapshot import Snapshot
from manyheads.outputs import Outputs
from manyheads.setup.build import Ensemble, assemble
from manyheads.training.summarise import taught_event

STEPS = 3


@dataclass
class PartialSnapshot:
    """A snapshot that covers two samples of three, as one that was asked about other rows."""

    whole: Snapshot

    @property
    def client(self) -> int:
        return self.whole.client

    def outputs(self, rows: Rows) -> Outputs:
        return replace(self.whole.outputs(rows), known_B=rows.samples % 3 != self.client % 3)


def begun(tiny: Experiment, *, partly: bool = False, **knobs: Any) -> Ensemble:
    """Return clients that met once; as they are hardly trained, much is missed."""
    e = assemble(tiny.with_values(clients=4, algorithm={"targets_per_step": 2, **knobs}))
    exchange(e, step=0)
    for client in e.clients if partly else ():
        entries: Any = [PartialSnapshot(entry) for entry in client.pool.entries]
        client.pool.entries = entries
    return e


def counted(e: Ensemble) -> TeacherTally:
    taught = who_taught_whom(e.clients, e.resolved.algorithm, 0, STEPS, pairs=False)
    assert taught is not None
    return taught


def missed_by_hand(e: Ensemble, *, same_level: bool) -> list[int]:
    """Return what the surest candidates missed, head by head."""
    missed = [0, 0]
    for client in e.clients:
        client.model.eval()
        batches = client.batches(0, STEPS, e.resolved.algorithm.plan(client, 0, STEPS))
        for batch in map(batches.at, range(STEPS)):
            own_BHC = client.model(batch.public.images)[0].detach().softmax(-1)
            for b, label in enumerate(batch.public_labels().tolist()):
                sent = [teacher.outputs(batch.public) for teacher in batch.teachers]
                others = [it.probabilities_BHC[b] for it in sent if it.known_B is None or it.known_B[b]]
                for k in (1, 2):
                    candidates = [p_HC[k - 1] for p_HC in (own_BHC[b], *others)]
                    candidates += [p_HC[k] for p_HC in others] if same_level else []
                    surest = max(candidates, key=lambda p: float(p.max()))
                    says = [int(p.argmax()) for p in candidates]
                    missed[k - 1] += label in says and int(surest.argmax()) != label
        client.model.train()
    return missed


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("same_level", [False, True])
@pytest.mark.parametrize("select", ["most_confident", "mixture"])
def test_missed_candidates_by_hand(tiny: Experiment, select: str, same_level: bool, partly: bool) -> None:
    e = begun(tiny, partly=partly, select=select, same_level=same_level)
    taught = counted(e)
    assert taught.missed is not None
    assert taught.missed.tolist() == missed_by_hand(e, same_level=same_level)
    assert taught.missed.min() > 0


@pytest.mark.parametrize("partly", [False, True])
def test_an_oracle_misses_nobody(tiny: Experiment, partly: bool) -> None:
    taught = counted(begun(tiny, partly=partly, select="oracle"))
    assert taught.missed is not None
    assert taught.missed.tolist() == [0, 0]


@pytest.mark.parametrize("partly", [False, True])
def test_right_and_missed_together_are_what_an_oracle_gets_right(tiny: Experiment, partly: bool) -> None:
    """The candidates are the same, whoever is chosen; by chance, too."""
    found = {select: counted(begun(tiny, partly=partly, select=select)) for select in ("oracle", "random", "mixture")}
    right = {
        select: np.array(taught.own_right) + np.array(taught.others_right).sum(1) for select, taught in found.items()
    }
    for select in ("random", "mixture"):
        assert (right[select] + found[select].missed == right["oracle"]).all()
        assert (right[select] < right["oracle"]).all()


def test_without_public_labels_nobody_knows_what_was_missed(tiny: Experiment, small_npz: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "public.npz", x_train=np.load(small_npz)["x_train"][:40])
    public = {"source": "npz", "path": str(tmp_path / "public.npz")}
    labels = {"per_client": 3}
    data = {"source": "npz", "path": str(small_npz), "public": public, "public_fraction": None}
    taught = counted(begun(tiny.with_values(data={**data, "primary_labels": labels})))
    assert taught.missed is None
    assert taught_event(taught, 20).missed is None
    assert taught.own.sum() > 0


def test_an_algorithm_need_not_say_who_the_candidates_were(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for all clients nor for some of them."""
    usual = MHD.teacher_choices

    def silent(algorithm: MHD, client: Client, batch: Batch) -> TeacherChoices | None:
        choices = usual(algorithm, client, batch)
        return choices and TeacherChoices(choices.teacher_BK, choices.class_BK)

    def silent_about_the_last(algorithm: MHD, client: Client, batch: Batch) -> TeacherChoices | None:
        return (silent if client.index == 3 else usual)(algorithm, client, batch)

    e = begun(tiny)
    expected = counted(e)
    for method in (silent, silent_about_the_last):
        monkeypatch.setattr(MHD, "teacher_choices", method)
        found = counted(e)
        assert found.missed is None
        assert found.own_right is not None
        assert np.array_equal(found.own_right, np.array(expected.own_right))
    both = expected + found
    assert both.missed is None
    assert (found + expected).missed is None
    assert (both.own == 2 * expected.own).all()


def test_two_workers_add_up_what_their_clients_missed(tiny: Experiment) -> None:
    e = begun(tiny)
    whole = counted(e)
    parts = [
        who_taught_whom(part, e.resolved.algorithm, 0, STEPS, pairs=False) for part in (e.clients[:1], e.clients[1:])
    ]
    assert parts[0] is not None
    assert parts[1] is not None
    assert torch.equal(torch.as_tensor((parts[0] + parts[1]).missed), torch.as_tensor(whole.missed))

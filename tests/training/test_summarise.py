"""The files of a run grow linearly with its clients; what is measured of pairs of clients is kept apart."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manyheads import Experiment, resume, train
from manyheads.evaluation.accuracy import Evaluation
from manyheads.evaluation.teacher_tally import TeacherTally
from manyheads.runs.events import Event, on_test_set
from manyheads.runs.read import read_events, read_relations, read_summary
from manyheads.runs.summary import Summary
from manyheads.setup.build import Ensemble
from manyheads.setup.resolve import resolve
from manyheads.training.summarise import LatestEvents, evaluation_event, start_event, summarise, taught_event

HEADS, CLASSES = 3, 10


def even(tiny: Experiment, clients: int) -> Experiment:
    """An experiment in which hundreds of clients have samples, and as many hops lie between them."""
    data = {"public_fraction": 0.05, "validation_fraction": 0.05, "skew": 0.0}
    return tiny.with_values(clients=clients, data=data, graph={"name": "cycle"})


def ended(experiment: Experiment) -> tuple[Summary, list[Event]]:
    """The summary and the events of an evaluation, as of a run whose every number has all its digits."""
    resolved, clients = resolve(experiment), experiment.clients
    stand_ins: Any = [
        SimpleNamespace(
            name=resolved.client_name(i),
            private=resolved.split.private[i],
            primary_labels=resolved.split.primary_labels[i],
            bytes_received=10**9 + i,
            refused=0,
        )
        for i in range(clients)
    ]
    e = Ensemble(resolved, stand_ins, origins=[], parts=[])
    by_head = np.random.default_rng(0).random((clients, HEADS)).tolist()
    judged = {part: Evaluation(part, by_head, by_head, [1.0] * clients, []) for part in ("validation", "test")}
    many = np.full((clients, CLASSES), 10_000)
    by_teacher = np.full((HEADS - 1, clients), 10_000)
    of_own = by_teacher[:, 0]
    taught = TeacherTally(of_own, of_own, by_teacher, by_teacher, many, many, of_own, chosen=None, right=None)
    by_hop = {str(away): own for away, own in enumerate(by_head)}
    told: list[Event] = [
        start_event(e, {}),
        evaluation_event(judged["test"], 20, None, by_hop),
        taught_event(taught, 20),
    ]
    latest = LatestEvents()
    for event in told:
        latest.remember(event)
    return summarise(e, judged, latest, seconds=1.0, time={"steps": 1.0}, how={"engine": "plain"}), told


@pytest.mark.parametrize("clients", [8, 64, 256])
def test_what_is_written_of_a_client_takes_the_same_room_in_any_company(tiny: Experiment, clients: int) -> None:
    summary, events = ended(even(tiny, clients))
    assert len(summary.clients) == len(summary.by_hop or ()) == clients
    written = len(json.dumps(summary.model_dump(), indent=1))
    assert written < 1_000 + 1_500 * clients
    for event in events:
        assert len(json.dumps(event.model_dump())) < 1_000 + 300 * clients


def test_many_clients_are_not_looked_at_pair_by_pair_unless_it_was_asked_for(tiny: Experiment) -> None:
    assert [resolve(even(tiny, clients)).measures_relations for clients in (64, 65)] == [True, False]
    asked = even(tiny, 65).with_values(evaluate={"relations": True})
    assert resolve(asked).measures_relations


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that looks at clients pair by pair, and the same one without."""
    from tests.conftest import TINY

    folder, experiment = tmp_path_factory.mktemp("both"), Experiment(**TINY)
    train(experiment, folder / "with")
    train(experiment.with_values(evaluate={"relations": False}), folder / "without")
    return folder / "with", folder / "without"


def test_hops_are_measured_at_the_end_in_any_case(both: tuple[Path, Path]) -> None:
    related, alone = (on_test_set(read_events(folder)) for folder in both)
    assert [event.by_hop is None for event in related] == [False, False]
    assert [event.by_hop is None for event in alone] == [True, False]
    assert related[-1].by_hop == alone[-1].by_hop == read_summary(both[1]).by_hop


def test_pairs_are_kept_of_the_last_evaluation_or_not_at_all(both: tuple[Path, Path]) -> None:
    relations, summary = read_relations(both[0]), read_summary(both[0])
    assert relations is not None
    assert relations.step == 20
    for client, by_head in enumerate(relations.accuracy_on or ()):
        assert [own[client] for own in by_head] == pytest.approx(summary.clients[client].private_accuracy)
    assert summary.taught is not None
    own = np.array(relations.chosen)[range(3), :, range(3)].sum(0)  # students x heads x teachers
    assert own.tolist() == summary.taught.own
    assert read_relations(both[1]) is None
    assert not (both[1] / "relations.json").exists()


def test_nothing_else_depends_on_it(both: tuple[Path, Path]) -> None:
    times = {"seconds", "client_steps_per_second", "time"}
    one, other = (read_summary(folder).model_dump(exclude=times) for folder in both)
    assert one == other
    one_by_one = [[event.model_dump(exclude=times | {"by_hop"}) for event in read_events(folder)] for folder in both]
    assert one_by_one[0] == one_by_one[1]


def test_no_line_and_no_summary_holds_pairs(both: tuple[Path, Path]) -> None:
    for name in ("metrics.jsonl", "summary.json"):
        text = (both[0] / name).read_text()
        assert "accuracy_on" not in text
        assert '"chosen"' not in text


def test_a_result_without_a_folder_knows_pairs_too(tiny: Experiment, both: tuple[Path, Path]) -> None:
    assert train(tiny).relations == read_relations(both[0])


def test_a_run_that_was_killed_at_its_very_end_keeps_what_it_counted(both: tuple[Path, Path]) -> None:
    """The pools are gone by then, so teachers could not be counted again."""
    before, relations = read_summary(both[0]), read_relations(both[0])
    (both[0] / "summary.json").unlink()
    result = resume(both[0])
    assert (result.summary.taught, result.summary.by_hop) == (before.taught, before.by_hop)
    assert result.relations == relations


def test_a_summary_is_read_like_a_dict(both: tuple[Path, Path]) -> None:
    summary = read_summary(both[0])
    assert summary["shared_accuracy"] == summary.shared_accuracy
    assert summary["clients"][1]["name"] == "client-1"
    assert "deploy" in summary
    assert "accuracy_on" not in summary
    assert {**summary}.keys() == dict(summary).keys() == set(summary) == summary.keys()
    with pytest.raises(KeyError, match="accuracy_on"):
        summary["accuracy_on"]

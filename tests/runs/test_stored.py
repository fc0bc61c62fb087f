"""The JSON files of a run folder: typed, linear in the number of clients, and read with suspicion."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyheads import RunError
from manyheads.report.plots import plot_run
from manyheads.runs.events import EvaluationEvent, LossesEvent, ProbeEvent, StartEvent, TaughtEvent
from manyheads.runs.read import read_events, read_relations, read_start, read_summary
from manyheads.runs.stored import FORMAT

# A run of eight steps that was made before files had a format number: nobody may write such files any more.
OLD = Path(__file__).parent / "without_format"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def values(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_an_old_run_is_still_read(old: Path) -> None:
    written = values(old / "summary.json")
    assert "format" not in written
    summary = read_summary(old)
    for name in ("shared_accuracy", "private_accuracy", "by_hop", "bytes_received", "probe", "deploy", "time"):
        found = summary[name]
        expected = written[name] | {"prior": False} if name == "deploy" else written[name]
        assert (dict(found) if name == "deploy" else found) == expected
    assert [client.shared_accuracy for client in summary.clients] == [
        client["shared_accuracy"] for client in written["clients"]
    ]
    kinds = [type(event) for event in read_events(old)]
    assert kinds[:5] == [StartEvent, LossesEvent, EvaluationEvent, EvaluationEvent, TaughtEvent]
    assert kinds[-1] is ProbeEvent


@pytest.mark.usefixtures("blank_pictures")
def test_what_an_old_run_said_of_pairs_is_found(old: Path) -> None:
    judged, taught = lines(old)[7:9]
    relations = read_relations(old)
    assert relations is not None
    assert (relations.step, relations.accuracy_on) == (8, judged["accuracy_on"])
    assert (relations.chosen, relations.right) == (taught["chosen"], taught["right"])
    counts = read_summary(old).taught
    assert counts is not None
    assert counts.missed is None
    for head in range(2):
        of_all = [by_head[head] for by_head in taught["chosen"]]  # students x teachers
        assert counts.own[head] == sum(of_all[student][student] for student in range(3))
        for teacher in range(3):
            others = [of_all[student][teacher] for student in range(3) if student != teacher]
            assert counts.others[head][teacher] == sum(others)
    assert {path.name for path in plot_run(old)} >= {"hops.png", "matrix.png", "taught.png"}


def test_an_old_run_that_this_version_went_on_with_holds_events_of_both_forms(old: Path) -> None:
    new = TaughtEvent(step=12, own=[1, 2], others=[[0, 1, 2], [0, 0, 1]], missed=[1, 0])
    with (old / "metrics.jsonl").open("a") as file:
        file.write(new.model_dump_json() + "\n")
    assert read_events(old)[-1] == new


def replaced(content: str, **changes: Any) -> str:
    """Return the JSON text of an object with some values changed."""
    return json.dumps(json.loads(content) | changes)


def client_with(**changes: Any) -> Callable[[str], str]:
    def damage(content: str) -> str:
        first, *others = json.loads(content)["clients"]
        return replaced(content, clients=[first | changes, *others])

    return damage


ANY_FILE: dict[str, Callable[[str], str]] = {
    "nothing": lambda _: "\n",
    "half a file": lambda content: content[: len(content) // 2] + "\n",
    "not text": lambda _: "\udcff\udc80\n",
    "a list": lambda _: "[1, 2]\n",
    "a word": lambda _: '"summary"\n',
    "deeply nested": lambda _: "[" * 100_000 + "]" * 100_000 + "\n",
    "nested in a value": lambda _: '{"event": "start", "algorithm": ' + "[" * 5_000 + "]" * 5_000 + "}\n",
    "5,000 digits": lambda content: content.replace('"step": 8', '"step": ' + "9" * 5_000, 1),
    "a newer format": lambda content: replaced(content, format=FORMAT + 1),
    "no number as a format": lambda content: replaced(content, format="one"),
    "a huge format": lambda content: replaced(content, format=10**4_000),
}
SUMMARY: dict[str, Callable[[str], str]] = {
    "no clients": lambda content: replaced(content, clients=[]),
    "a client too few": lambda content: replaced(content, clients=json.loads(content)["clients"][:2]),
    "clients that are numbers": lambda content: replaced(content, clients=[1, 2, 3]),
    "a client without a name": client_with(name=None),
    "a name that is a list": client_with(name=["client-0"]),
    "a label that does not exist": client_with(primary_labels=[10]),
    "a negative label": client_with(primary_labels=[-1]),
    "a head too few": client_with(shared_accuracy=[0.5, 0.5]),
    "a head that does not exist": client_with(deploy={"private": 0, "shared": 3}),
    "a map as wide as memory": client_with(maps=[10**18]),
    "text as accuracy": lambda content: replaced(content, shared_accuracy=["0.5"] * 3),
    "true as accuracy": lambda content: replaced(content, shared_accuracy=[True] * 3),
    "NaN": lambda content: replaced(content, shared_accuracy=[float("nan")] * 3),
    "more than all": lambda content: replaced(content, shared_accuracy=[1.5] * 3),
    "no head": lambda content: replaced(content, shared_accuracy=[], private_accuracy=[]),
    "infinitely many": lambda content: content.replace('"seconds": ', '"seconds": 1e999, "was": ', 1),
    "negative seconds": lambda content: replaced(content, seconds=-1.0),
    "huge counts": lambda content: replaced(content, bytes_received=[10**30] * 3),
    "an image without sides": lambda content: replaced(content, image_shape=[]),
    "a huge image": lambda content: replaced(content, image_shape=[10**9, 10**9, 3]),
    "hops with a name": lambda content: replaced(content, by_hop={"\x1b[2J": [0.5] * 3}),
    "a collapse of nobody": lambda content: replaced(content, collapsed=[[3, 0, 0]]),
    "no seed": lambda content: replaced(content, seed=None),
    "students of another run": lambda content: replaced(content, taught={"step": 8, "own": [1], "others": [[1, 1]]}),
}


# Counts that a summary holds since it says what was missed.
COUNTS = {"step": 8, "own": [1, 1], "others": [[1, 1, 1]] * 2}
MISSED: dict[str, Any] = {
    "a head too few": [1],
    "a head too many": [1, 1, 1],
    "teachers": [[1, 1, 1]] * 2,
    "less than none": [-1, 0],
    "more than can be counted": [2**63, 0],
    "half a sample": [0.5, 0],
    "true": [True, False],
    "text": ["1", "0"],
    "a word": "many",
    "a number": 1,
    "nothing in a list": [None, None],
}
SUMMARY |= {
    f"missed: {name}": lambda content, missed=missed: replaced(content, taught=COUNTS | {"missed": missed})  # type: ignore[misc]
    for name, missed in MISSED.items()
}


def test_what_was_missed_is_read(old: Path) -> None:
    path = old / "summary.json"
    path.write_text(replaced(path.read_text(), taught=COUNTS | {"missed": [1, 0]}))
    counts = read_summary(old).taught
    assert counts is not None
    assert counts.missed == [1, 0]


def check_refused(read: Callable[[Path], object], folder: Path, name: str) -> str:
    with pytest.raises(RunError) as refused:
        read(folder)
    text = str(refused.value)
    assert name in text
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 400 + len(str(folder))
    return text


@pytest.mark.parametrize("damage", [*ANY_FILE, *SUMMARY])
def test_a_summary_that_no_run_writes_is_refused(old: Path, damage: str) -> None:
    path = old / "summary.json"
    content = (ANY_FILE | SUMMARY)[damage](path.read_text())
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    check_refused(read_summary, old, "summary.json")


def with_line(number: int, **changes: Any) -> Callable[[str], str]:
    def damage(content: str) -> str:
        every = content.splitlines()
        every[number] = replaced(every[number], **changes)
        return "\n".join([*every, ""])

    return damage


def with_accuracies(clients: int, heads: int) -> dict[str, Any]:
    return {name: [[0.5] * heads] * clients for name in ("private_accuracy", "shared_accuracy")}


EVENTS: dict[str, Callable[[str], str]] = {
    "an unknown event": with_line(1, event="\x1b[2Jparty"),
    "an event without a name": with_line(1, event=None),
    "a step that is text": with_line(1, step="4"),
    "a negative step": with_line(1, step=-4),
    "losses that are text": with_line(1, losses="low"),
    "no losses": with_line(1, losses={}),
    "a loss that is not a number": with_line(1, losses={"cross\n_entropy": [0.1, float("nan"), 0.1]}),
    "losses of two clients": with_line(1, losses={"cross_entropy": [0.1, 0.2]}),
    "losses of different clients": with_line(1, losses={"one": [0.1] * 3, "two": [0.1] * 2}),
    "another part": with_line(2, part="training"),
    "accuracies of two clients": with_line(2, **with_accuracies(2, 3)),
    "accuracies of two heads": with_line(2, **with_accuracies(3, 2)),
    "ragged accuracies": with_line(2, private_accuracy=[[0.5], [0.5, 0.5], [0.5]]),
    "no accuracies": with_line(2, **with_accuracies(0, 0)),
    "ragged pairs": with_line(4, chosen=[[[1]], [[1, 2]], []]),
    "pairs that are text": with_line(4, chosen="client-0"),
    "a negative count": with_line(4, chosen=[[[-1] * 3] * 2] * 3),
    "a class too few": with_line(4, right_by_class=[[1] * 9] * 3),
    "heads too many that were missed": with_line(4, missed=[1, 1, 1]),
    "a sample missed less than never": with_line(4, missed=[-1, 0]),
    "a probe of nobody": with_line(9, shared_accuracy=[]),
    "labels of two clients": with_line(0, label_counts=[[1] * 10] * 2),
    "a label that does not exist": with_line(0, primary_labels=[[10], [], []]),
    "a device that is a command": with_line(0, device="cuda; rm"),
    "an engine with a line break": with_line(0, engine="pl\nain"),
    "another precision": with_line(0, precision="float8"),
    "clients without names": with_line(0, client_names=[]),
}


@pytest.mark.parametrize("damage", [*(name for name in ANY_FILE if "format" not in name), *EVENTS])
def test_events_that_no_run_writes_are_refused(old: Path, damage: str) -> None:
    path = old / "metrics.jsonl"
    content = (ANY_FILE | EVENTS)[damage](path.read_text())
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    check_refused(read_events, old, "metrics.jsonl")
    check_refused(plot_run, old, "metrics.jsonl")
    assert not (old / "plots").exists()


def test_a_newer_run_asks_for_a_newer_version(old: Path) -> None:
    path = old / "metrics.jsonl"
    path.write_text(with_line(0, format=FORMAT + 1)(path.read_text()))
    for read in (read_start, read_events):
        assert "use a newer manyheads" in check_refused(read, old, "metrics.jsonl: line 1")


def test_an_event_is_named_by_its_line(old: Path) -> None:
    path = old / "metrics.jsonl"
    path.write_text(with_line(2, part="training")(path.read_text()))
    assert "metrics.jsonl: line 3: " in check_refused(read_events, old, "metrics.jsonl")


PAIRS: dict[str, dict[str, Any]] = {
    "text": {"accuracy_on": "high"},
    "ragged": {"accuracy_on": [[[0.5], [0.5, 0.5]]] * 2},
    "not square": {"accuracy_on": [[[0.5, 0.5]]] * 3},
    "counts below zero": {"chosen": [[[-1]]]},
    "more students than were right": {"chosen": [[[1]]], "right": [[[1, 0]], [[0, 1]]]},
    "a newer format": {"format": FORMAT + 1},
}


@pytest.mark.parametrize("damage", [*(name for name in ANY_FILE if "digits" not in name), *PAIRS])
def test_pairs_that_no_run_writes_are_refused(old: Path, damage: str) -> None:
    content = json.dumps({"format": FORMAT, "step": 8})
    content = replaced(content, **PAIRS[damage]) if damage in PAIRS else ANY_FILE[damage](content)
    (old / "relations.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    check_refused(read_relations, old, "relations.json")


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl"])
def test_what_is_no_file_is_not_opened(old: Path, name: str) -> None:
    (old / name).unlink()
    os.mkfifo(old / name)
    read: Callable[[Path], object] = read_summary if name == "summary.json" else read_events
    with pytest.raises(RunError):
        read(old)

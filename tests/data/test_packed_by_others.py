"""Packed folders, finished or not, that are damaged or by somebody else: one line says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyheads.data.journal import JOURNAL
from manyheads.data.loading import load
from manyheads.data.pack import pack, verify
from tests.data.made import check_line, class_folders, data, refusal

SAMPLES = 10


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """Pack two clients with a training and a test part, and coarse and fine labels."""
    rng, sites = np.random.default_rng(0), tmp_path / "sites"
    sites.mkdir()
    for name in ("berlin", "paris"):
        arrays: dict[str, Any] = {}
        for part in ("train", "test"):
            arrays[f"x_{part}"] = rng.integers(0, 256, size=(SAMPLES, 6, 6), dtype=np.uint8)
            arrays[f"y_{part}"] = np.arange(SAMPLES) % 2
            arrays[f"fine_{part}"] = np.arange(SAMPLES) % 4
        np.savez(sites / f"{name}.npz", **arrays)
    out = tmp_path / "packed"
    pack(data(source="clients", path=sites, fine_label="fine"), out, workers=1)
    np.save(out / "train-kept.npy", np.arange(2 * SAMPLES))
    change_card(out, lambda card: card["parts"]["train"].update(kept=[2 * SAMPLES]))
    return out


def change_card(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    card = json.loads((path / "pack.json").read_text())
    change(card)
    (path / "pack.json").write_text(json.dumps(card))


def refused(path: Path) -> str:
    return refusal(data(source="packed", path=path))


def test_the_folder_as_it_is(clients: Path) -> None:
    assert load(data(source="packed", path=clients)).client_names == ("berlin", "paris")
    assert verify(clients) == []


NUMBERS = {"labels": 1, "fine": 3, "owners": 1, "kept": 2 * SAMPLES - 1}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("wrong", [-1, 10**9, 2**62])
def test_numbers_out_of_range(clients: Path, kind: str, wrong: int) -> None:
    """Labels, clients and kept images must exist; finer classes may be any numbers from 0 on."""
    file = clients / f"train-{kind}.npy"
    array = np.load(file)
    array[3] = wrong
    np.save(file, array)
    if kind == "fine" and wrong > 0:
        load(data(source="packed", path=clients))
    else:
        check_line(refused(clients), file, f"holds {wrong}; needed: 0", "pack it again")


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_the_wrong_kind(clients: Path, kind: str) -> None:
    file = clients / f"train-{kind}.npy"
    right = np.load(file)
    for wrong in (right.astype(np.float64), right.astype(np.int32), right[:-1], right[:, None], right.astype(str)):
        np.save(file, wrong)
        check_line(refused(clients), file, "pack it again")


def test_an_image_that_is_kept_twice(clients: Path) -> None:
    for kept in ([0, 1, 1], [3, 2, 1]):
        np.save(clients / "train-kept.npy", np.array(kept))
        change_card(clients, lambda card: card["parts"]["train"].update(kept=[3]))
        check_line(refused(clients), clients / "train-kept.npy", "names an image twice, or not in order")


NESTED = "[" * 100_000
CARDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no training part": lambda card: card["parts"].pop("train"),
    "a part with another name": lambda card: card["parts"].update({"../../x": card["parts"]["train"]}),
    "a name that is a number": lambda card: card.update(name=3),
    "classes that are numbers": lambda card: card.update(classes=[1, 2]),
    "classes that are a text": lambda card: card.update(classes="ab"),
    "clients that are numbers": lambda card: card.update(clients=[None, None]),
    "named that is a text": lambda card: card.update(named="yes"),
    "notes that are numbers": lambda card: card.update(notes=[1]),
    "a shape of words": lambda card: card["parts"]["train"].update(images=["a", "b", "c", "d"]),
    "a shape below 0": lambda card: card["parts"]["train"].update(images=[-1, 6, 6, 1]),
    "a shape of three": lambda card: card["parts"]["train"].update(images=[2 * SAMPLES, 6, 6]),
    "labels of two axes": lambda card: card["parts"]["train"].update(labels=[SAMPLES, 2]),
    "fewer labels than images": lambda card: card["parts"]["train"].update(labels=[SAMPLES]),
    "more kept than there are": lambda card: card["parts"]["train"].update(kept=[2 * SAMPLES + 1]),
    "finer classes of one part": lambda card: card["parts"]["test"].pop("fine"),
    "owners without clients": lambda card: card.update(clients=[]),
    "clients without owners": lambda card: [part.pop("owners") for part in card["parts"].values()],
    "a format that is true": lambda card: card.update(format=True),
}


@pytest.mark.parametrize("change", CARDS.values(), ids=CARDS)
def test_a_card_with_something_else_in_it(clients: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    change_card(clients, change)
    check_line(refused(clients), clients / "pack.json", "not the description of a packed folder; pack it again")


@pytest.mark.parametrize("content", [NESTED, '{"format": ' + "9" * 5_000 + "}", '{"format": 1e999}', '{"a":' * 9_999])
def test_a_card_that_no_reader_takes(clients: Path, content: str) -> None:
    (clients / "pack.json").write_text(content)
    check_line(refused(clients), clients / "pack.json", "not the description of a packed folder; pack it again")
    check_line(refusal(lambda: verify(clients)), clients / "pack.json")


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Return a stopped packing with a journal of two lines."""
    pets = class_folders(tmp_path / "pets", {"cat": 5, "dog": 5})
    (pets / "cat" / "0.png").write_bytes(b"no image")
    with pytest.raises(KeyboardInterrupt):
        pack(data(source="folder", path=pets), tmp_path / "half", workers=1, progress=_stop)
    return tmp_path / "half"


def _stop(done: int, total: int, unreadable: int) -> None:
    if done == total:
        raise KeyboardInterrupt


def go_on(half: Path) -> dict[str, Any]:
    return pack(data(source="folder", path=half.parent / "pets"), half, workers=1)


def test_the_half_as_it_is(half: Path) -> None:
    assert len((half / JOURNAL).read_text().splitlines()) == 2
    assert len(go_on(half)["unreadable"]) == 1


LINES: dict[str, Any] = {
    "not an object": [],
    "nothing": {},
    "a start that is a word": {"start": "0"},
    "a start below 0": {"start": -64},
    "a state that is a number": {"state": 1},
    "no part": {"part": None},
    "unreadable that is a number": {"unreadable": 3},
    "unreadable without a reason": {"unreadable": [[0]]},
    "an unreadable image below 0": {"unreadable": [[-1, "x"]]},
    "an unreadable image that does not exist": {"unreadable": [[10, "x"]]},
    "a palette of words": {"palette": ["a"]},
    "a palette image that does not exist": {"palette": [64]},
}


@pytest.mark.parametrize("change", LINES.values(), ids=LINES)
def test_a_journal_with_something_else_in_it(half: Path, change: Any) -> None:
    begun, chunk = (half / JOURNAL).read_text().splitlines()
    line = {**json.loads(chunk), **change} if change else change
    (half / JOURNAL).write_text(f"{begun}\n{json.dumps(line)}\n")
    check_line(refusal(lambda: go_on(half)), half, f"its {JOURNAL} is damaged; remove it or give another folder")


@pytest.mark.parametrize("line", [NESTED, '{"start": ' + "9" * 5_000 + "}", "[]", '{"packing": 3}', '{"packing": {}}'])
@pytest.mark.parametrize("at", [0, 1])
def test_a_journal_that_no_reader_takes(half: Path, line: str, at: int) -> None:
    lines = (half / JOURNAL).read_text().splitlines()
    lines[at] = line
    (half / JOURNAL).write_text("\n".join(lines) + "\n")
    check_line(refusal(lambda: go_on(half)), half, f"its {JOURNAL} is damaged")


def test_lines_about_chunks_that_do_not_exist_are_nothing(half: Path) -> None:
    begun, chunk = (half / JOURNAL).read_text().splitlines()
    others = [{**json.loads(chunk), "start": 7, "palette": [3]}, {**json.loads(chunk), "part": "test"}]
    (half / JOURNAL).write_text("\n".join([begun, chunk, *map(json.dumps, others)]) + "\n")
    card = go_on(half)
    assert len(card["unreadable"]) == 1
    assert not card["notes"]


def test_packing_writes_through_no_link(half: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("mine")
    for name in ("train-images.npy", JOURNAL):
        kept = (half / name).read_bytes()
        (half / name).unlink()
        (half / name).symlink_to(own)
        check_line(refusal(lambda: go_on(half)), half / name, "remove it or give another folder")
        (half / name).unlink()
        (half / name).write_bytes(kept)
    assert own.read_text() == "mine"

"""The record of what this user made here."""

import json
from pathlib import Path

import pytest

from manyheads.imports import Code
from manyheads.made_here import PLACE, remember, trust_in

CODE: Code = {"my_lab:net": ("/home/me/my_lab.py",)}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PLACE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_folder_is_known_by_its_place_and_by_what_it_asks_for(state: Path, tmp_path: Path) -> None:
    assert trust_in(tmp_path / "run", "abc", said=False).known == {}
    assert remember(tmp_path / "run", "abc", CODE)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path / "run", tmp_path / "link" / "run"):
        assert trust_in(folder, "abc", said=False).known == CODE
    assert trust_in(tmp_path / "run", "abd", said=False).known == {}
    assert trust_in(tmp_path / "run2", "abc", said=False).known == {}


def test_nobody_else_can_read_or_write_the_record(state: Path, tmp_path: Path) -> None:
    remember(tmp_path / "run", "abc", CODE)
    assert state.stat().st_mode & 0o777 == 0o700
    state.chmod(0o770)  # somebody else may have written it
    assert trust_in(tmp_path / "run", "abc", said=False).known == {}
    remember(tmp_path / "run", "abc", CODE)
    assert trust_in(tmp_path / "run", "abc", said=False).known == CODE


@pytest.mark.parametrize("text", ["", "[]", "{", '{"asks_for": "abc"}', '{"asks_for": "abc", "code": [1]}'])
def test_a_damaged_record_lets_nothing_in(state: Path, tmp_path: Path, text: str) -> None:
    remember(tmp_path / "run", "abc", CODE)
    (record,) = state.iterdir()
    assert json.loads(record.read_text())["folder"] == str(tmp_path / "run")
    record.write_text(text)
    assert trust_in(tmp_path / "run", "abc", said=False).known == {}


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not below the working folder, whatever the environment says: that may hold files of strangers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for named, states, place in (
        (str(tmp_path / "named"), str(tmp_path / "states"), "named"),
        ("named", str(tmp_path / "states"), "states/manyheads"),
        ("", "states", "home/.local/state/manyheads"),
    ):
        monkeypatch.setenv(PLACE, named)
        monkeypatch.setenv("XDG_STATE_HOME", states)
        assert remember(tmp_path / "run", "abc", CODE)
        assert len(list((tmp_path / place).iterdir())) == 1


def test_without_a_place_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(PLACE, str(tmp_path / "file" / "state"))
    assert not remember(tmp_path / "run", "abc", CODE)
    assert trust_in(tmp_path / "run", "abc", said=False).known == {}

"""The record of run folders and exports that this user made here."""

import json
from pathlib import Path

import pytest

from manyheads.imports import Code
from manyheads.provenance import STATE_VARIABLE, record_code, recorded_trust

CODE: Code = {"my_lab:net": ("/home/me/my_lab.py",)}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_folder_is_known_by_its_place_and_by_what_it_asks_for(state: Path, tmp_path: Path) -> None:
    assert recorded_trust(tmp_path / "run", "abc", trust_code=False).known == {}
    assert record_code(tmp_path / "run", "abc", CODE)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path / "run", tmp_path / "link" / "run"):
        assert recorded_trust(folder, "abc", trust_code=False).known == CODE
    assert recorded_trust(tmp_path / "run", "abd", trust_code=False).known == {}
    assert recorded_trust(tmp_path / "run2", "abc", trust_code=False).known == {}


def test_nobody_else_can_read_or_write_the_record(state: Path, tmp_path: Path) -> None:
    record_code(tmp_path / "run", "abc", CODE)
    assert state.stat().st_mode & 0o777 == 0o700
    state.chmod(0o770)  # somebody else may have written it
    assert recorded_trust(tmp_path / "run", "abc", trust_code=False).known == {}
    record_code(tmp_path / "run", "abc", CODE)
    assert recorded_trust(tmp_path / "run", "abc", trust_code=False).known == CODE


@pytest.mark.parametrize("text", ["", "[]", "{", '{"asks_for": "abc"}', '{"asks_for": "abc", "code": [1]}'])
def test_a_damaged_record_lets_nothing_in(state: Path, tmp_path: Path, text: str) -> None:
    record_code(tmp_path / "run", "abc", CODE)
    (record,) = state.iterdir()
    assert json.loads(record.read_text())["folder"] == str(tmp_path / "run")
    record.write_text(text)
    assert recorded_trust(tmp_path / "run", "abc", trust_code=False).known == {}


def test_the_place_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never below the working folder, whatever the environment says: that may hold strangers' files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for named, states, place in (
        (str(tmp_path / "named"), str(tmp_path / "states"), "named"),
        ("named", str(tmp_path / "states"), "states/manyheads"),
        ("", "states", "home/.local/state/manyheads"),
    ):
        monkeypatch.setenv(STATE_VARIABLE, named)
        monkeypatch.setenv("XDG_STATE_HOME", states)
        assert record_code(tmp_path / "run", "abc", CODE)
        assert len(list((tmp_path / place).iterdir())) == 1


def test_without_a_place_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "file" / "state"))
    assert not record_code(tmp_path / "run", "abc", CODE)
    assert recorded_trust(tmp_path / "run", "abc", trust_code=False).known == {}

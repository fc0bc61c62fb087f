"""Commands on a folder whose code is a stranger's."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads import Experiment
from manyheads.cli import commands, main
from manyheads.provenance import STATE_VARIABLE
from tests.strangers import CODE, NAME, SHORT, ran

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.mark.parametrize("command", ["resume", "evaluate", "export"])
def test_a_stranger_s_code_is_run_only_where_the_user_says_so(stranger: Path, command: str) -> None:
    if command == "resume":
        (stranger / "summary.json").unlink()
    refused = CliRunner().invoke(commands.app, [command, str(stranger)])
    assert refused.exit_code == 2
    (line,) = refused.stderr.strip().splitlines()
    assert line.startswith(f'error: runs/stranger: model.backbone = "{NAME}:net" would import {stranger.absolute()}/')
    assert not ran(stranger)
    assert CliRunner().invoke(commands.app, [command, str(stranger), "--trust-code"]).exit_code == 0
    assert ran(stranger)


def test_the_working_folder_is_not_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder `timm` that was unpacked there would be taken for the library where that is not installed."""
    seen: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(commands, "app", lambda: seen.extend(sys.path))
    main()
    assert seen
    assert str(tmp_path) not in seen


def test_seeds_of_one_s_own_experiment_go_on_unasked(
    tiny: Experiment, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user who gives an experiment vouches for its code, whatever is recorded."""
    Path("own_lab.py").write_text(CODE)
    Path("own.toml").write_text(str(tiny.with_values(**SHORT, model={"backbone": "own_lab:net"})))
    command = ["run", "own.toml", "--seeds", "2", "--quiet"]
    assert CliRunner().invoke(commands.app, command).exit_code == 0
    Path("runs/own/seed-1/summary.json").unlink()
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "lost"))
    again = CliRunner().invoke(commands.app, command)
    assert again.exit_code == 0, again.output
    assert Path("runs/own/seed-1/summary.json").exists()

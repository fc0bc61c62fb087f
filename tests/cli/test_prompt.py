"""Help and mistakes are answered without PyTorch: benchmarks/startup.py says how fast."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STARTUP = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "startup.py"))
HEAVY = ("torch", "pandas", "sklearn", "matplotlib", "networkx", "safetensors")
SCRIPT = f"""
import json, sys
from typer.testing import CliRunner
from manyheads.cli.commands import app
from manyheads.config import device

device._has_driver = lambda: False
for line in sys.argv[1:]:
    result = CliRunner().invoke(app, line.split())
    print(json.dumps([line, result.exit_code, result.output, [name for name in {HEAVY} if name in sys.modules]]))
"""


LINES = (
    *STARTUP["LINES"],
    "run experiment.toml --engine cuda",
    "run experiment.toml --device cuda",
    "frontier experiment.toml --device cuda:1",
    "resume begun --device cuda",
    "reproduce heads --device cuda",
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """Return the answers to all command lines, given in one process: what one imports, all later ones would show."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "experiment.toml").write_text(STARTUP["EXPERIMENT"])
    (folder / "begun").mkdir()
    (folder / "begun" / "experiment.toml").write_text(STARTUP["EXPERIMENT"])
    command = [sys.executable, "-c", SCRIPT, *LINES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_help_and_mistakes_need_nothing_heavy(answers: list[list[Any]]) -> None:
    assert len(answers) == len(LINES) > 25
    assert [(line, imported) for line, _, _, imported in answers if imported] == []


def test_each_is_answered(answers: list[list[Any]]) -> None:
    for line, code, output, _ in answers:
        assert code == (0 if "--help" in line or "--version" in line else 2), (line, output)
        mistake = output.startswith("error: ") and len(output.splitlines()) == 1
        assert mistake if code else "Usage" in output or "manyheads 0" in output, (line, output)


INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

from manyheads.cli import main
assert "typer" not in sys.modules
sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("module", ["typer", "manyheads.cli.runs", "torch"])
def test_ctrl_c_in_the_middle_of_an_import(module: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(STARTUP["EXPERIMENT"])
    script = INTERRUPTED.replace("MODULE", repr(module))
    command = [sys.executable, "-c", script, "run", "experiment.toml", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\nstopped\n")

"""An algorithm or a model whose module cannot be imported: one line names the key and the reason."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads.cli.commands import app

MODULES = {
    "no Python": ("def f(:\n", "SyntaxError"),
    "no text": ("\0", "SyntaxError: source code"),
    "an error": ("raise RuntimeError('first line\\nsecond line')", "RuntimeError: first line"),
    "a key that is missing": ("{}['key']", "KeyError: 'key'"),
    "a module that is missing": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "an end": ("import sys; sys.exit('bye')", "SystemExit: bye"),
    "an end of another kind": ("class Stop(BaseException): pass\nraise Stop('now')", "Stop: now"),
    "no end": ("def f(): f()\nf()", "RecursionError"),
    "too much": ("raise MemoryError", "MemoryError"),
    "nothing in it": ("", "has no Thing"),
}


@pytest.mark.parametrize("content", MODULES)
@pytest.mark.parametrize("key", ["algorithm.name", "model.backbone"])
def test_modules_that_cannot_be_imported(
    content: str, key: str, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, reason = MODULES[content]
    name = f"lab_{key.replace('.', '_')}_{[*MODULES].index(content)}"
    (tiny_file.parent / f"{name}.py").write_text(text)
    monkeypatch.chdir(tiny_file.parent)
    result = CliRunner().invoke(app, ["run", str(tiny_file), "--set", f"{key}={name}:Thing", "--out", "run"])
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert f'{key} = "{name}:Thing": ' in result.stderr
    assert reason in result.stderr
    assert not (tiny_file.parent / "run").exists()


@pytest.mark.parametrize("engine", ["plain", pytest.param("parallel", marks=pytest.mark.slow)])
def test_code_that_ends_the_program_is_no_success(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Code that calls sys.exit() while clients train, as far as can be seen from outside."""
    monkeypatch.chdir(tiny_file.parent)
    later = ["--set", "model.backbone=tests.models.lab:ExitingLater", "--set", "algorithm.name=separate"]
    result = CliRunner().invoke(app, ["run", str(tiny_file), *later, "--out", "run", "--engine", engine])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert ("SystemExit: 0 (lab.py, line " if engine == "plain" else "ended by itself (exit code 0)") in line

"""Code by its import path: where it is found, and when it may be imported."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from manyheads import ConfigurationError, RunError
from manyheads.imports import Trust, files_of, import_library, import_named


def anything(found: Any) -> bool:
    return True


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a package in the working folder, and in it a second one without `__init__.py`."""
    folder = tmp_path / "a_lab"
    (folder / "plain").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "plain" / "nets.py").write_text("def net(): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return folder


def test_files_are_found_without_running_any(lab: Path) -> None:
    assert files_of("a_lab.plain.nets") == (str(lab / "__init__.py"), str(lab / "plain" / "nets.py"))
    for name in ("a_lab.plain.nothing", "a_lab.nets", "a_lab..plain", "", ".a_lab", "no_such_lab"):
        assert files_of(name) == ()
    assert "a_lab" not in sys.modules


def test_a_module_that_is_loaded_is_the_one_that_counts(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["pytest"], "__path__", [str(lab)], raising=False)
    assert files_of("pytest") == (os.path.realpath(pytest.__file__),)
    assert files_of("sys") == ("built-in",)


def test_the_path_comes_before_the_working_folder(lab: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "both_lab.py").write_text("WHERE = 'installed'\n")
    Path("both_lab.py").write_text("WHERE = 'here'\n")
    sys.path.insert(0, str(installed))
    assert import_named("both_lab:WHERE", "key", anything, "", Trust.full()) == "installed"
    assert str(tmp_path) not in sys.path
    del sys.modules["both_lab"]


def test_the_working_folder_is_on_the_path_only_for_allowed_code(lab: Path, tmp_path: Path) -> None:
    Path("here_lab.py").write_text("WHERE = 'here'\n")
    with pytest.raises(RunError, match=r"here_lab\.py"):
        import_named("here_lab:WHERE", "key", anything, "", Trust("a run"))
    assert str(tmp_path) not in sys.path
    assert import_named("here_lab:WHERE", "key", anything, "", Trust.full()) == "here"
    assert str(tmp_path) in sys.path
    del sys.modules["here_lab"]


def test_one_line_says_what_would_be_imported(lab: Path) -> None:
    with pytest.raises(RunError) as refused:
        import_named("a_lab.plain.nets:net", "model.backbone", anything, "a factory", Trust("runs/theirs"))
    assert str(refused.value) == (
        f'runs/theirs: model.backbone = "a_lab.plain.nets:net" would import {lab / "__init__.py"}, '
        f"{lab / 'plain' / 'nets.py'}, and you did not make this folder here; read that code first, then say "
        "--trust-code (in Python: trust_code=True)"
    )


def test_code_from_another_file_than_recorded_is_refused(lab: Path, tmp_path: Path) -> None:
    Path("moved_lab.py").write_text("WHERE = 'here'\n")
    trust = Trust("a run", {"moved_lab:WHERE": ("/elsewhere/moved_lab.py",)})
    with pytest.raises(RunError, match=r"and you made this folder with /elsewhere/moved_lab.py; read that code first"):
        import_named("moved_lab:WHERE", "key", anything, "", trust)
    known = Trust("a run", {"moved_lab:WHERE": (str(tmp_path / "moved_lab.py"),)})
    assert import_named("moved_lab:WHERE", "key", anything, "", known) == "here"
    assert known.imported == known.known
    del sys.modules["moved_lab"]


def test_a_package_is_not_run_for_a_module_that_is_not_there(lab: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'^key = "a_lab.nothing:net": cannot be imported'):
        import_named("a_lab.nothing:net", "key", anything, "", Trust("a run"))
    assert "a_lab" not in sys.modules


@pytest.mark.parametrize(
    "name", ["os:abort", "subprocess:Popen", "http.server:test", "antigravity:fly", "zlib:adler32"]
)
def test_modules_of_the_standard_library_are_not_imported(name: str) -> None:
    loaded = set(sys.modules)
    for trust in (Trust.full(), Trust("a run", trust_code=True)):
        with pytest.raises(ConfigurationError, match="is a part of Python itself; needed: a factory"):
            import_named(name, "model.backbone", anything, "a factory", trust)
    assert set(sys.modules) == loaded


def test_a_module_that_exits_is_one_line(lab: Path) -> None:
    Path("leaving_lab.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(ConfigurationError, match=r"cannot be imported: SystemExit: 3 \(leaving_lab.py, line 1\)"):
        import_named("leaving_lab:net", "key", anything, "", Trust.full())


def test_an_error_names_the_line_of_the_users_file(lab: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"RuntimeError: imported \(__init__.py, line 1\)"):
        import_named("a_lab:net", "key", anything, "", Trust.full())


def test_what_does_not_fit_is_named() -> None:
    for name, kind in (("torch.nn:Linear", "the class Linear"), ("torch.nn:init", "a module")):
        with pytest.raises(ConfigurationError, match=f'^key = "{name}": is {kind}; needed: a number$'):
            import_named(name, "key", lambda found: isinstance(found, int), "a number", Trust.full())


def test_a_library_is_not_imported_from_the_working_folder(lab: Path, tmp_path: Path) -> None:
    Path("some_library.py").write_text("raise RuntimeError('the code of a stranger was run')\n")
    (tmp_path / "installed").mkdir()
    for beside in ("", str(tmp_path), f"{tmp_path}/a_lab/..", "."):
        sys.path.insert(0, beside)
        before = [*sys.path]
        with pytest.raises(ModuleNotFoundError):
            import_library("some_library")
        assert sys.path == before
    sys.path.append(str(tmp_path / "installed"))
    (tmp_path / "installed" / "some_library.py").write_text("import sys; sys.path.append('added')\n")
    assert import_library("some_library").__file__ == str(tmp_path / "installed" / "some_library.py")
    assert sys.path == [*before, str(tmp_path / "installed"), "added"]
    del sys.modules["some_library"]


def test_a_library_is_not_imported_from_beside_the_program(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "some_library.py").write_text("")
    sys.path.insert(0, str(lab))
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(lab / "program.py"), raising=False)
    with pytest.raises(ModuleNotFoundError):
        import_library("some_library")

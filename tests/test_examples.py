"""The worked examples of docs/data.md and docs/own-data.md, command by command, on a few images."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from manyheads.cli.commands import app
from manyheads.config.experiment import Experiment

ROOT = Path(__file__).parent.parent
FEWER = ["--set", "training.steps=40", "--set", "training.warmup_steps=4", "--set", "evaluate.every=40"]


def commands(section: str, page: str = "data.md") -> list[list[str]]:
    """The shell lines below a heading."""
    text = (ROOT / "docs" / page).read_text()
    found = re.search(rf"^## {section}\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert found, f"docs/{page} has lost its section {section}"
    lines = "".join(re.findall(r"```sh\n(.*?)```", found.group(1), re.DOTALL)).splitlines()
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_images", ROOT / "examples" / "make_images.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(
    ("section", "run"),
    [
        ("My own folders", "own-folders"),
        ("One folder per organisation", "organisations"),
        ("My own model", "own-model"),
    ],
)
def test_an_example_runs(
    section: str, run: str, maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = []
    for words in commands(section):
        if words[0] == "PYTHONPATH=examples":
            monkeypatch.syspath_prepend(ROOT / "examples")
            words = words[1:]
        if words[0] == "python":
            assert words[1] == "examples/make_images.py"
            make = maker.make_clients if words[3:] == ["--clients"] else maker.make_folders
            make(Path(words[2]), train=24, test=6)
        else:
            assert words[0] == "manyheads"
            result = CliRunner().invoke(app, [*words[1:], *FEWER], catch_exceptions=False)
            assert result.exit_code == 0, result.output
        done.append(words[1])
    assert done[-1] == "run"
    summary = json.loads((tmp_path / "runs" / run / "summary.json").read_text())
    assert [client["name"] for client in summary["clients"]] == (
        ["berlin", "paris", "rome"] if run == "organisations" else ["client-0", "client-1", "client-2"]
    )
    assert summary["image_shape"] == [16, 16, 3]
    assert summary["private_accuracy"][0] > 1 / 6
    sys.modules.pop("my_lab", None)


def test_the_ten_minutes_run(maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    make, *rest = commands("Ten minutes", "own-data.md")
    assert make == ["python", "examples/make_images.py", "shapes"]
    maker.make_folders(Path("shapes"), train=24, test=6)
    outputs = [CliRunner().invoke(app, [*words[1:], *FEWER], catch_exceptions=False).output for words in rest]
    assert "joining with these settings" in outputs[1]
    assert "± over 3 seeds" in outputs[2]
    assert (tmp_path / "runs" / "three-seeds" / "fedmd" / "seed-2" / "summary.json").exists()


def test_the_page_shows_the_model_of_the_example() -> None:
    page = (ROOT / "docs" / "data.md").read_text()
    code = (ROOT / "examples" / "my_lab.py").read_text()
    assert code[code.index("from torch") :] in page


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_every_experiment_file_is_valid(path: Path) -> None:
    Experiment.load(path)

"""The docs: their examples run, and what they say is true."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from manyheads import Experiment, train
from manyheads.algorithms import ALGORITHMS
from manyheads.graph import GRAPHS
from manyheads.models.backbones import BACKBONES
from manyheads.models.fedmd import FEDMD

ROOT = Path(__file__).parent.parent


def python_block(page: str, number: int = 0) -> str:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(found) > number, f"{page} has lost its example"
    return str(found[number])


def keys_of(kind: type[BaseModel]) -> set[str]:
    nested = [field.annotation for field in kind.model_fields.values()]
    inner = [keys_of(n) for n in nested if isinstance(n, type) and issubclass(n, BaseModel)]
    return set(kind.model_fields).union(*inner)


def test_every_key_is_documented() -> None:
    page = re.sub(r"```.*?```", "", (ROOT / "docs" / "experiment.md").read_text(), flags=re.DOTALL)
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", page))))
    assert keys_of(Experiment) <= named
    for algorithm in ALGORITHMS.values():
        assert {field.name for field in dataclasses.fields(algorithm)} <= named  # type: ignore[arg-type]
    assert {*GRAPHS, "phases"} <= named


@pytest.mark.parametrize("engine", ["plain", "parallel"])
def test_the_algorithm_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Experiment, engine: str
) -> None:
    """The algorithm of docs/adding.md has at most 25 lines, fills its pool and learns from neighbours."""
    block = python_block("docs/adding.md")
    assert len(block[block.index("@dataclass") :].splitlines()) <= 25
    (tmp_path / "my_lab.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    agreed = train(tiny.with_values(algorithm={"name": "my_lab:Agree", "every": 5}), engine=engine)
    assert {entry.client for entry in agreed.clients[0].pool.entries} == ({1, 2} if engine == "plain" else set())
    assert agreed.summary["bytes_received_total"] > 0
    alone = train(tiny.with_values(algorithm={"name": "separate"})).summary
    assert agreed.summary["shared_accuracy"] != alone["shared_accuracy"]
    del sys.modules["my_lab"]


def test_the_model_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Experiment) -> None:
    (tmp_path / "my_models.py").write_text(python_block("docs/adding.md", 1))
    monkeypatch.syspath_prepend(tmp_path)
    summary = train(tiny.with_values(model={"backbone": "my_models:Patches"}, training={"steps": 4})).summary
    assert [client["embedding_width"] for client in summary["clients"]] == [64, 64, 64]
    del sys.modules["my_models"]


def test_every_backbone_is_documented() -> None:
    page = (ROOT / "docs" / "experiment.md").read_text()
    for name in BACKBONES:
        assert f"`{name}`" in page or name in FEDMD
    assert all(f"{', '.join(map(str, widths))} (" in page for widths, _ in FEDMD.values())


def test_the_readme_s_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        python_block("README.md")
        .replace('"experiments/', f'"{ROOT}/experiments/')
        .replace('"steps": 300', '"steps": 40')
    )
    assert '"steps": 40' in code
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102
    assert "classify" in names
    assert (tmp_path / "runs" / "python" / "summary.json").exists()

"""Code of strangers in workers: what this process may not import, they may not either."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from manyheads import RunError, resume
from manyheads.engine.parallel import _spawned_worker
from manyheads.engine.ray.actor import search_as
from manyheads.engine.remote import ClientPayload
from manyheads.imports import Trust
from manyheads.runs.read import read_experiment
from manyheads.setup.build import assemble
from tests.strangers import ran


@pytest.fixture
def unfinished(stranger: Path) -> Path:
    (stranger / "summary.json").unlink()
    return stranger


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes(unfinished: Path, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned one begins with nothing; it does not take another torch from the working folder either."""
    monkeypatch.setattr("manyheads.engine.parallel.start_method", lambda: start)
    Path("torch.py").write_text("raise SystemExit(9)\n")
    with pytest.raises(RunError, match="you did not make this folder here"):
        resume(unfinished, engine="parallel", workers=1)
    assert not ran(unfinished)
    assert resume(unfinished, engine="parallel", workers=1, trust_code=True).summary["steps"] == 2


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_ray_actors(unfinished: Path, ray_here: None) -> None:
    with pytest.raises(RunError, match="you did not make this folder here"):
        resume(unfinished, engine="ray")
    assert not ran(unfinished)
    assert resume(unfinished, engine="ray", trust_code=True).summary["steps"] == 2


def test_the_decision_travels_to_workers(unfinished: Path) -> None:
    ensemble = assemble(read_experiment(unfinished), trust=Trust("runs/stranger", trust_code=True))
    payload = ClientPayload.of(ensemble, [0], "cpu")
    assert _spawned_worker(ensemble.resolved, payload).probes() == ensemble.probes()[:1]
    with pytest.raises(RunError, match=r"^runs/stranger: .* would import"):
        _spawned_worker(replace(ensemble.resolved, trust=Trust("runs/stranger")), payload)


def test_actors_search_where_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/working/folder", "/ray", "/library"])
    search_as(["/library", "/working/folder"])
    assert sys.path == ["/library", "/working/folder", "/ray"]

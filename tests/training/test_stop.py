"""A run is stopped wherever it happens to be, and leaves signals as they were."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from manyheads import Experiment, resume, train
from manyheads.cli.commands import app
from manyheads.engine.plain import LocalEngine
from manyheads.errors import Interrupted
from manyheads.runs.manifest import read_manifest
from manyheads.training.result import Result
from tests.runs.conftest import StopAt
from tests.runs.test_kill import outcome

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_in(method: str, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the run to stop while its engine is called for the n-th time, before that has an effect."""
    usual, calls = getattr(LocalEngine, method), list[int]()

    def interrupted(self: LocalEngine, *arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return usual(self, *arguments, **options)

    monkeypatch.setattr(LocalEngine, method, interrupted)


@pytest.mark.parametrize(
    ("method", "call", "step"),
    [("exchange", 1, 0), ("exchange", 3, 4), ("scores", 1, 8), ("scores", 3, 18), ("probes", 1, 20)],
)
def test_stopped_in(
    method: str, call: int, step: int, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tiny.with_values(evaluate={"probe": True})
    train(wanted, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_in(method, call, patch)
        with pytest.raises(Interrupted, match=f"stopped at step {step}"):
            train(wanted, tmp_path / "run")
    if step > 0:
        assert read_manifest(tmp_path / "run").step == step
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_signals_are_heard_as_before(tiny: Experiment) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(Interrupted):
        train(tiny, observer=StopAt(10))
    assert [signal.getsignal(number) for number in SIGNALS] == before
    train(tiny)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_in_another_thread_nobody_hears_signals(tiny: Experiment) -> None:
    before, results = [signal.getsignal(number) for number in SIGNALS], list[Result]()
    thread = threading.Thread(target=lambda: results.append(train(tiny)))
    thread.start()
    thread.join()
    assert results[0].summary.steps == 20
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.slow
def test_sigterm_stops_a_run_and_its_workers(tiny: Experiment, tmp_path: Path) -> None:
    """As a cluster's scheduler asks, which knows the first process only."""
    long = tiny.with_values(training={"steps": 400, "log_every": 5})
    (tmp_path / "long.toml").write_text(str(long))
    command = [sys.executable, "-m", "manyheads", "run", str(tmp_path / "long.toml"), "--out", str(tmp_path / "run")]
    process = subprocess.Popen([*command, "--engine", "parallel", "--workers", "2"], stderr=subprocess.PIPE, text=True)
    metrics, children = tmp_path / "run" / "metrics.jsonl", Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (metrics.exists() and b'"losses"' in metrics.read_bytes()):
        assert process.poll() is None
        time.sleep(0.02)
    workers = [Path("/proc") / worker for worker in children.read_text().split()]
    assert len(workers) >= 2
    process.terminate()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert re.fullmatch(r"\nstopped at step \d+.*; continue with: manyheads resume .*/run\n", said)
    assert not any(worker.exists() for worker in workers)
    resume(tmp_path / "run")
    train(long, tmp_path / "whole", engine="parallel", workers=2)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_stopped_demo_says_how_to_run_it_again(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single run of the three could be resumed, but that would not compare them."""
    monkeypatch.setattr("manyheads.studies.demo.demo_experiment", lambda: tiny)
    monkeypatch.setattr("manyheads.cli.runs.usable_cores", lambda: 1)
    stop_in("scores", 1, monkeypatch)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 130
    assert result.stderr.strip() == "stopped; the same command runs the demo from its beginning"

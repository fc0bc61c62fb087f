"""A run that is killed at any moment resumes and ends with the same bits as one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manyheads import Experiment, resume, train
from manyheads.errors import Interrupted
from manyheads.runs.manifest import read_manifest
from manyheads.runs.read import read_events, read_summary
from manyheads.runs.stored import Stored
from manyheads.runs.tensors import read_client_values
from tests.conftest import TINY
from tests.runs.conftest import StopAt
from tests.runs.killed import run_and_die

TIMES = {"seconds", "client_steps_per_second", "time"}


def without_times(value: Any) -> Any:
    if isinstance(value, Stored):
        value = value.model_dump()
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def outcome(folder: Path) -> tuple[Any, Any, list[dict[str, bytes]]]:
    """Return everything that a run decides: events, summary and weights, without times."""
    clients = [read_client_values(folder, read_manifest(folder), client) for client in range(3)]
    weights = [{name: tensor.numpy().tobytes() for name, tensor in client.items()} for client in clients]
    return without_times(read_events(folder)), without_times(read_summary(folder)), weights


def nothing_half_written(folder: Path) -> None:
    """Assert that every file under its final name is whole."""
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())
    if (folder / "experiment.toml").exists():
        Experiment.load(folder / "experiment.toml")
    if (folder / "checkpoints" / "manifest.json").exists():
        for client in range(3):
            read_client_values(folder, read_manifest(folder), client)


@pytest.fixture
def uninterrupted(made: Path) -> Path:
    return made / "ended"


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("half-write", 2),  # before any save
        ("before-rename", 4),  # within the first save
        ("half-write", 7),  # half a snapshot
        ("after-rename", 9),  # between the snapshots and the manifest
        ("half-write", 14),  # half a line of metrics.jsonl
        ("before-sync", 24),
        ("after-rename", 17),  # before the files of the save before were let go
    ],
)
def test_killed_while_writing(uninterrupted: Path, tmp_path: Path, moment: str, number: int) -> None:
    folder = tmp_path / "run"
    assert run_and_die(folder, moment, number) == -signal.SIGKILL
    nothing_half_written(folder)
    resume(folder)
    assert outcome(folder) == outcome(uninterrupted)
    assert not list(folder.rglob("*.partial"))
    kept = {path.name for path in (folder / "checkpoints").iterdir()}
    assert kept == {*read_manifest(folder).files, "manifest.json"}


@pytest.mark.slow
def test_killed_at_random_moments(uninterrupted: Path, tmp_path: Path) -> None:
    """Processes of the command line are killed again and again until the run has ended."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed of the moments: {seed}")
    draw, folder = random.Random(seed), tmp_path / "run"
    toml = tmp_path / "tiny.toml"
    toml.write_text(str(Experiment(**TINY).with_values(training={"save_seconds": 0.0})))
    kills = 0
    for attempt in range(40):
        begun = (folder / "experiment.toml").exists()
        arguments = ["resume", str(folder)] if begun else ["run", str(toml), "--out", str(folder)]
        process = subprocess.Popen([sys.executable, "-m", "manyheads", *arguments], stdout=subprocess.DEVNULL)
        size = metrics_size(folder)
        deadline = time.monotonic() + 120
        while process.poll() is None and metrics_size(folder) == size and time.monotonic() < deadline:
            time.sleep(0.002)
        if attempt < 4:
            time.sleep(draw.uniform(0.0, 0.12))
            process.kill()
        code = process.wait(timeout=120)
        nothing_half_written(folder)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
    assert kills >= 1
    assert outcome(folder) == outcome(uninterrupted)


def metrics_size(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.stat().st_size if path.exists() else -1


def test_killed_before_the_folder_has_its_name(tiny: Experiment, tmp_path: Path) -> None:
    """A run killed this early leaves no run folder, and the same command begins again."""
    folder = tmp_path / "run"
    for moment, number in (("before-rename", 1), ("before-rename", 2)):
        assert run_and_die(folder, moment, number) == -signal.SIGKILL
        assert not folder.exists()
    train(tiny, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class InterruptTwice(StopAt):
    """The second one comes while the run is saved because of the first."""

    def stopping(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_the_second_interrupt_leaves_at_once_with_the_last_save_intact(
    uninterrupted: Path, tiny: Experiment, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted, match=r"stopped at step 10 \(1 client-steps since then are dropped\)"):
        train(tiny, folder, observer=StopAt(31))
    with pytest.raises(KeyboardInterrupt):
        resume(folder, observer=InterruptTwice(19))
    nothing_half_written(folder)
    assert json.loads((folder / "checkpoints" / "manifest.json").read_text())["step"] == 10
    resume(folder)
    assert outcome(folder) == outcome(uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_window_of_minutes_is_left_at_once(tiny: Experiment, tmp_path: Path, number: signal.Signals) -> None:
    toml, folder = tmp_path / "long.toml", tmp_path / "run"
    long = {"steps": 30_000, "log_every": 30_000, "save_seconds": 0.0}
    toml.write_text(str(tiny.with_values(training=long, algorithm={"pool_every": 30_000}, evaluate={"every": 30_000})))
    command = [sys.executable, "-m", "manyheads", "run", str(toml), "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while metrics_size(folder) <= 0:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip().startswith("stopped at step 0")
    assert errors.strip().endswith(f"continue with: manyheads resume {folder}")
    assert "Traceback" not in errors

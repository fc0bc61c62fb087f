"""The parallel engine's workers: who gets whom, what they are refused, and that none outlives its run."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from manyheads import Experiment, resume, train
from manyheads.engine.failure import RemoteError, attempted
from manyheads.engine.options import EngineOptions, ResolvedOptions
from manyheads.engine.parallel import ParallelEngine
from manyheads.engine.pickling import packed, unpacked
from manyheads.engine.plain import PlainTrainer
from manyheads.engine.remote import RemoteWorker, deal
from manyheads.errors import ConfigurationError, ModelError, SnapshotError, TrainingError
from manyheads.setup.build import assemble
from tests.contracts import experiment
from tests.engine.test_lost import decided


def test_work_is_dealt_out_evenly() -> None:
    assert deal([1] * 8, 2) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert deal([1, 1, 1, 9], 2) == [[3], [0, 1, 2]]
    assert deal([5, 4, 3, 3, 3], 2) == [[0, 3], [1, 2, 4]]
    assert deal([0, 0, 0], 3) == [[0], [1], [2]]  # also where nothing was counted


@pytest.mark.parametrize("workers", [0, -1, 4])
def test_a_number_of_workers_that_cannot_be(tiny: Experiment, tmp_path: Path, workers: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--workers {workers}: this experiment can use 1 to 3"):
        train(tiny, tmp_path / "run", engine="parallel", workers=workers)
    assert not (tmp_path / "run").exists()


def test_options_of_other_engines_are_refused(tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match="--workers 2: belongs to --engine parallel, not to plain"):
        train(tiny, workers=2)
    with pytest.raises(ConfigurationError, match="--address here: belongs to --engine ray"):
        train(tiny, engine="parallel", address="here")


def test_workers_train_on_the_cpu() -> None:
    with pytest.raises(ConfigurationError, match=r"--device cuda: .* use --engine cuda, or --engine plain"):
        EngineOptions(engine="parallel", device="cuda")


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same(tiny: Experiment, workers: int) -> None:
    assert decided(train(tiny, engine="parallel", workers=workers)) == decided(train(tiny))


def test_a_loss_that_is_not_a_number(tiny: Experiment, tmp_path: Path) -> None:
    said, wild = [], tiny.with_values(training={"learning_rate": 1e6}, algorithm={"pool_every": 12})
    for engine in ("plain", "parallel"):
        with pytest.raises(TrainingError, match=r"step \d+, client-\d: the loss term") as raised:
            train(wild, tmp_path / engine, engine=engine)
        said.append(str(raised.value))
        assert not (tmp_path / engine).exists()
    assert said[0] == said[1]
    assert multiprocessing.active_children() == []


def test_errors_of_a_worker_come_home(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise SnapshotError("client 7: sends nonsense")

    def fail(*_: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(PlainTrainer, "train", refuse)
    with pytest.raises(SnapshotError, match=r"^client 7: sends nonsense$"):
        train(tiny, engine="parallel")
    monkeypatch.setattr(PlainTrainer, "train", fail)
    with pytest.raises(RuntimeError, match=r"the worker of client-.*: ValueError: a defect") as raised:
        train(tiny, engine="parallel")
    assert "in fail" in str(raised.value.__cause__)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_that_cannot_make_its_clients(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, start: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise ModelError("my_lab:Net", "gives nothing")

    ensemble = assemble(tiny)
    if start == "fork":
        monkeypatch.setattr("manyheads.engine.parallel._forked_worker", refuse)
    else:  # what is sent does not fit what is made of it
        monkeypatch.setattr("manyheads.engine.parallel.ClientPayload.of", lambda *_: None)
    said = pytest.raises((ModelError, RuntimeError), match=r"my_lab:Net: gives nothing|the worker of client-")
    with contextlib.closing(ParallelEngine(ensemble, ResolvedOptions(), start=start)) as engine, said:
        engine.exchange(0)
    assert "Traceback" not in capfd.readouterr().err


def test_out_of_gpu_memory_before_the_first_step(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("manyheads.training.start.assemble", full)
    with pytest.raises(TrainingError, match=r"out of GPU memory: .*; lower training.batch_size"):
        train(tiny)


def test_an_error_keeps_its_kind() -> None:
    def refuse() -> None:
        raise ModelError("my_lab:Net", "gives nothing")

    failed = attempted(refuse)
    assert isinstance(failed, RemoteError)
    error = unpacked(*packed(failed)).error("somebody")
    assert type(error) is ModelError
    assert str(error) == "my_lab:Net: gives nothing"


def test_a_snapshot_is_one_object_in_a_worker() -> None:
    """However many pools show it."""
    ensemble, other = assemble(experiment("mhd")), assemble(experiment("mhd"))
    worker = RemoteWorker(ensemble, PlainTrainer())
    asked = worker.collect(0)
    assert asked is not None
    sent = {request.key: worker.send(other.clients[request.owner].snapshot(0)) for request in asked}
    worker.apply({key: unpacked(*packed(own)) for key, own in sent.items()}, 0)
    entries = [entry for client in ensemble.clients for entry in client.pool.entries]
    assert len(entries) == 9
    assert len({id(entry) for entry in entries}) == 3


def test_what_travels_is_what_was_sent(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.arange(100_000, dtype=np.uint8))
    images = np.load(tmp_path / "images.npy", mmap_mode="r")
    turned = np.memmap(tmp_path / "turned", np.uint8, "w+", shape=(3, 5), order="F")
    turned[:] = np.arange(15).reshape(3, 5)
    assert np.array_equal(unpacked(*packed(turned)), turned)
    value = {"map": images, "large": torch.arange(5_000), "small": torch.tensor(7), "none": torch.zeros(0)}
    body, buffers = packed(value)
    assert len(buffers) == 1
    assert len(body) < 5_000  # the file's path, not what is in it
    found = unpacked(body, [bytearray(buffer.raw()) for buffer in buffers])
    assert np.array_equal(found["map"], images)
    for name in ("large", "small", "none"):
        assert torch.equal(found[name], value[name])
        assert found[name].dtype == value[name].dtype


LONG = {"steps": 30_000, "log_every": 30_000, "save_seconds": 0.0}


def descendants(pid: int) -> list[int]:
    """Return all processes that a process started, directly or indirectly."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for own in found:
        found += [child for child, parent in parents.items() if parent == own]
    return found[1:]


def gone(pids: list[int], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def started(toml: Path, folder: Path, *arguments: str) -> Any:
    """A run from the command line, in a group of its own as from a terminal, once it trains."""
    command = [sys.executable, "-m", "manyheads", "run", str(toml), "--out", str(folder), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not ((folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process, descendants(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_interrupted_from_a_terminal(tiny: Experiment, tmp_path: Path) -> None:
    """Ctrl-C reaches the workers, too: the run is saved at its last edge, and goes on in any engine."""
    wanted = tiny.with_values(training={"steps": 160, "log_every": 20}, algorithm={"pool_every": 20})
    toml, folder = tmp_path / "tiny.toml", tmp_path / "run"
    toml.write_text(str(wanted))
    with started(toml, folder, "--engine", "parallel", "--workers", "2") as (process, workers):
        assert len(workers) == 2
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "continue with: manyheads resume" in errors
        assert "Traceback" not in errors
        assert gone(workers)
    assert decided(resume(folder, engine="plain")) == decided(train(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_workers_end_with_their_parent(tiny: Experiment, tmp_path: Path, how: signal.Signals) -> None:
    """Workers end with their parent even in the middle of a window of several minutes."""
    toml = tmp_path / "long.toml"
    toml.write_text(str(tiny.with_values(training=LONG, algorithm={"pool_every": 30_000}, evaluate={"every": 30_000})))
    with started(toml, tmp_path / "run", "--engine", "parallel", "--workers", "2") as (process, workers):
        assert len(workers) == 2
        if how == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGINT)
        assert gone(workers)
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors
        assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)

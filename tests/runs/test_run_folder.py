"""The run folder: its contents, and the errors that a damaged one raises."""

import fcntl
import json
import os
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyheads import ConfigurationError, Experiment, RunError, resume, train
from manyheads.errors import Interrupted
from manyheads.files import digest, write_whole
from manyheads.runs.folder import RunFolder
from manyheads.runs.manifest import Manifest
from manyheads.runs.read import read_events, read_experiment, read_summary
from manyheads.training.observer import SilentObserver
from tests.runs.conftest import StopAt

FILES = {"experiment.toml", "metrics.jsonl", "relations.json", "summary.json", "checkpoints"}


def test_what_a_run_leaves(run: Path, tiny: Experiment) -> None:
    assert {path.name for path in run.iterdir()} == FILES
    assert read_experiment(run).training == tiny.training
    summary = read_summary(run)
    for key in ("steps", "seconds", "client_steps_per_second", "bytes_received", "algorithm", "seed", "version"):
        assert key in summary
    assert len(summary["private_accuracy"]) == len(summary["shared_accuracy"]) == 3
    for client in summary["clients"]:
        assert {"name", "backbone", "samples", "primary_labels", "private_accuracy", "shared_accuracy"} <= client.keys()
    assert set(summary["deploy"]) == {"private", "shared", "prior"}
    kinds = [event["event"] for event in read_events(run)]
    assert kinds[0] == "start"
    assert kinds.count("losses") == 8  # edges at 4, 6, 8, 10, 12, 16, 18, 20
    assert [e["step"] for e in read_events(run) if e["event"] == "evaluation"] == [10, 10, 20, 20]


def test_the_means_are_those_of_the_clients(run: Path) -> None:
    summary = read_summary(run)
    for task in ("private_accuracy", "shared_accuracy"):
        for head, mean in enumerate(summary[task]):
            assert mean == pytest.approx(sum(client[task][head] for client in summary["clients"]) / 3)


def test_a_head_is_chosen_on_validation_data(run: Path) -> None:
    last = [e for e in read_events(run) if e["event"] == "evaluation" and e["part"] == "validation"][-1]
    for number, client in enumerate(read_summary(run)["clients"]):
        by_head = last["shared_accuracy"][number]
        assert by_head[client["deploy"]["shared"]] == max(by_head)
        assert client["validation"]["private_accuracy"] == last["private_accuracy"][number]


def test_without_validation_no_head_is_chosen(tiny: Experiment) -> None:
    summary = train(tiny.with_values(data={"validation_fraction": 0.0, "private_fraction": 0.6})).summary
    assert summary["deploy"] is None
    assert summary["validation"] is None


def test_only_the_files_of_the_last_save_stay(stopped: Path) -> None:
    kept = sorted(path.name for path in (stopped / "checkpoints").iterdir())
    manifest = json.loads((stopped / "checkpoints" / "manifest.json").read_text())
    assert kept == sorted([*manifest["files"], "manifest.json"])
    shown = [name for client in manifest["clients"] for name in client["pool"]]
    assert len(shown) == 9
    assert {name for name in kept if name.startswith("snapshot-")} == set(shown)
    resume(stopped)
    assert len(list((stopped / "checkpoints").iterdir())) == 4  # three clients and the manifest: pools are let go


def test_a_folder_that_exists_is_refused_and_left_alone(run: Path, tiny: Experiment, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    with pytest.raises(RunError, match="exists already; remove it, or give another folder"):
        train(tiny, run)
    assert before == sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    (tmp_path / "empty").mkdir()
    train(tiny.with_values(training={"steps": 4}, evaluate={"every": 4}), tmp_path / "empty")


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["data.path=a\udcffb.npz"], r'path = "a\udcffb.npz"'),
        (['model.backbone=["cnn", "cnn", "x\udcff"]'], r'"x\udcff"'),
    ],
)
def test_a_name_that_is_not_utf_8_cannot_be_written_down(
    tiny: Experiment, tmp_path: Path, overrides: list[str], line: str
) -> None:
    """On a command line, other bytes come as halves of characters."""
    experiment = Experiment.from_toml(str(tiny), overrides=overrides)
    with pytest.raises(ConfigurationError) as error:
        RunFolder.create(tmp_path / "run", experiment, "data")
    assert str(error.value) == f"{line}: is not UTF-8, which experiment.toml is; rename it"
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_folder_says_how_to_go_on(stopped: Path, tiny: Experiment) -> None:
    with pytest.raises(RunError, match="exists already; continue it with: manyheads resume"):
        train(tiny, stopped)


def test_an_interrupted_run_goes_on(stopped: Path, run: Path) -> None:
    assert resume(stopped).summary["shared_accuracy"] == read_summary(run)["shared_accuracy"]


@pytest.mark.parametrize(("save_seconds", "saves"), [(60.0, 1), (0.0, 8)])
def test_save_seconds_decides_how_often(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_seconds: float, saves: int
) -> None:
    steps, save = [], RunFolder.save

    def counted(self: RunFolder, step: int, *args: Any, **options: Any) -> None:
        steps.append(step)
        save(self, step, *args, **options)

    monkeypatch.setattr(RunFolder, "save", counted)
    train(tiny.with_values(training={"save_seconds": save_seconds}), tmp_path / "run")
    assert len(steps) == saves
    assert steps[-1] == 20


@pytest.mark.parametrize(
    ("said", "takes", "saves"),
    [(6.0, 0.125, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]), (6.0, 1.0, [2, 9, 16, 20]), (1.5, 1.0, [1, 6, 11, 16, 20])],
    ids=["as often as is said", "20 times as long as a save takes", "at most 10 times as long as is said"],
)
def test_after_a_slow_save_the_next_one_waits(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: float, takes: float, saves: list[int]
) -> None:
    steps, save, now = [], RunFolder.save, [0.0]

    class Ticking(SilentObserver):
        def progressed(self, client_steps: int) -> None:
            now[0] += client_steps  # a second for each of three clients

    def slow(self: RunFolder, step: int, *args: Any, **options: Any) -> None:
        steps.append(step)
        save(self, step, *args, **options)
        now[0] += takes

    monkeypatch.setattr(RunFolder, "save", slow)
    monkeypatch.setattr("manyheads.training.loop.time.perf_counter", lambda: now[0])
    train(tiny.with_values(training={"save_seconds": said, "log_every": 1}), tmp_path / "run", observer=Ticking())
    assert steps == saves


def test_a_stop_while_the_end_is_saved_lets_the_run_end(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def interrupted(self: RunFolder, *arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(self, *arguments, **options)

    class Watch(SilentObserver):
        def stopping(self) -> None:
            said.append("stopping")

    said = list[str]()
    monkeypatch.setattr(RunFolder, "save", interrupted)
    result = train(tiny, tmp_path / "run", observer=Watch())
    assert result.stop_requested
    assert said == ["stopping"]
    assert read_summary(tmp_path / "run")["steps"] == 20
    assert not train(tiny).stop_requested


def test_a_disk_that_takes_half_a_line_gets_the_other_half(
    run: Path, tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda to, data: write(to, data[: max(1, len(data) // 2)]))
    train(tiny, tmp_path / "halves")
    assert len(read_events(tmp_path / "halves")) == len(read_events(run))


Damage = Callable[[Path], None]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("damage", [flip_a_bit, cut, Path.unlink], ids=["changed", "truncated", "missing"])
@pytest.mark.parametrize("pattern", ["state-*", "snapshot-*"])
def test_a_damaged_checkpoint_file_is_named(stopped: Path, pattern: str, damage: Damage) -> None:
    victim = next((stopped / "checkpoints").glob(pattern))
    damage(victim)
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError) as error:
        resume(stopped)
    assert victim.name in str(error.value)
    assert "\n" not in str(error.value)
    assert (stopped / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", [flip_a_bit, cut], ids=["changed", "truncated"])
@pytest.mark.parametrize("name", ["checkpoints/manifest.json", "metrics.jsonl"])
def test_a_damaged_record_is_named(stopped: Path, name: str, damage: Damage) -> None:
    path = stopped / name
    content = path.read_text()
    if name.endswith("jsonl"):  # what comes after the save may be anything; what comes before may not
        path.write_text(content.splitlines(keepends=True)[0])
    damage(path)
    with pytest.raises(RunError, match=path.name):
        resume(stopped)


def test_a_changed_step_in_the_manifest_is_noticed(stopped: Path) -> None:
    path = stopped / "checkpoints" / "manifest.json"
    path.write_text(path.read_text().replace('"step": 10', '"step": 12'))
    with pytest.raises(RunError, match="was changed after it was written"):
        resume(stopped)


def test_a_checkpoint_of_another_experiment_is_refused(stopped: Path) -> None:
    path = stopped / "experiment.toml"
    path.write_text(path.read_text().replace("nu_aux = 10.0", "nu_aux = 2.0"))
    with pytest.raises(RunError, match="a checkpoint of a different experiment"):
        resume(stopped)


def test_a_key_that_did_not_exist_then_changes_nothing(stopped: Path, tiny: Experiment) -> None:
    """A checkpoint remembers the keys that its experiment's file holds, not those that this version fills in."""
    path = stopped / "checkpoints" / "manifest.json"
    told = Manifest.unseal(path)
    text = stopped.joinpath("experiment.toml").read_text()
    assert "heads_see" in text
    older = text.replace('heads_see = "embedding"\n', "")
    stopped.joinpath("experiment.toml").write_text(older)
    written = tomllib.loads(older)
    del written["training"]["save_seconds"]
    of_then = digest(json.dumps(written, sort_keys=True).encode())
    path.write_text(told.model_copy(update={"experiment": of_then}).seal())
    assert resume(stopped).summary["steps"] == tiny.training.steps


def test_changed_data_are_noticed(tiny: Experiment, small_npz: Path, tmp_path: Path) -> None:
    data = {"source": "npz", "path": str(small_npz), "primary_labels": {"assignment": "random", "per_client": 3}}
    with pytest.raises(Interrupted):
        train(tiny.with_values(data=data), tmp_path / "npz", observer=StopAt(25))
    arrays = dict(np.load(small_npz))
    arrays["x_train"][0] ^= 1
    np.savez(small_npz, **arrays)
    with pytest.raises(RunError, match="the data have changed"):
        resume(tmp_path / "npz")


def test_a_run_is_held_by_one_process(stopped: Path) -> None:
    with (stopped / "metrics.jsonl").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process is running"):
            resume(stopped)


@pytest.mark.parametrize("reader", [read_experiment, read_events, read_summary, resume])
def test_not_a_run_folder(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        reader(tmp_path)


def test_an_unfinished_run_has_no_summary(stopped: Path) -> None:
    with pytest.raises(RunError, match="has not ended; continue with: manyheads resume"):
        read_summary(stopped)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

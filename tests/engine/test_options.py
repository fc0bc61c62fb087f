"""The options of engines: their defaults, what is refused, and where the time of a run goes."""

import json
import signal
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from manyheads import ConfigurationError, Experiment, resume, train
from manyheads.cli.commands import app
from manyheads.engine.defaults import resolve_options
from manyheads.engine.options import EngineKeywords, EngineOptions, ResolvedOptions
from manyheads.engine.precision import computing_in
from manyheads.errors import Interrupted
from manyheads.runs.events import Event
from manyheads.runs.read import read_events
from manyheads.training.loop import TIMES
from manyheads.training.observer import SilentObserver


class StopAtLosses(SilentObserver):
    """Ctrl-C after the first window."""

    def happened(self, event: Event) -> None:
        if event["event"] == "losses" and event["step"] < 10:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "turbo"}, "--engine turbo: unknown engine"),
        ({"engine": "plain", "workers": 2}, "--workers 2: belongs to --engine parallel, not to plain"),
        ({"engine": "parallel", "address": "a:1"}, "--address a:1: belongs to --engine ray"),
        ({"engine": "plain", "precision": "fp8"}, "--precision fp8: unknown precision; known: bf16, float32, tf32"),
        ({"engine": "plain", "precision": "bf16"}, "--precision bf16: a CPU computes in float32"),
        ({"engine": "cuda", "device": "cpu"}, "--engine cuda --device cpu: it needs a GPU"),
        ({"engine": "ray", "device": "cuda", "gpus_per_client": 0.0}, "--gpus-per-client 0.0: must be above 0"),
        ({"engine": "ray", "gpus_per_client": 0.5}, "--gpus-per-client 0.5: needs --device cuda"),
        *(({"device": name}, f"--device {name}: unknown device") for name in ("tpu", "", "cpu:7", "cuda:x")),
        ({"device": "cuda\n"}, r"--device cuda\\n: unknown device"),
    ],
    ids=str,
)
def test_what_an_engine_does_not_understand_is_refused(given: EngineKeywords, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_options(EngineOptions(**given))


@pytest.mark.parametrize("options", [["--engine", "cuda"], ["--device", "cuda"]], ids=str)
def test_no_gpu_where_one_is_asked_for(
    tiny_file: Path, tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["run", str(tiny_file), *options, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "this machine has no CUDA device that PyTorch can use; use" in result.stderr
    assert not (tmp_path / "run").exists()


def test_what_follows_where_nothing_was_said() -> None:
    assert resolve_options(EngineOptions()) == ResolvedOptions("plain", "cpu", precision="float32")
    assert resolve_options(EngineOptions("ray", "cuda")) == ResolvedOptions("ray", "cuda", precision="bf16")
    given = EngineOptions("ray", "cuda", precision="tf32", profile=True)
    assert resolve_options(given) == ResolvedOptions("ray", "cuda", precision="tf32", profile=True)


def test_the_keywords_of_train_are_the_fields_of_the_options() -> None:
    assert EngineKeywords.__annotations__ == EngineOptions.__annotations__


@pytest.mark.gpu
def test_computing_in_a_precision() -> None:
    before = torch.backends.cudnn.allow_tf32
    for name in ("bf16", "tf32", "float32"):
        with computing_in(name, torch.device("cuda")):
            assert torch.is_autocast_enabled("cuda") == (name == "bf16")
            assert torch.backends.cudnn.allow_tf32 == (name == "tf32")
    assert torch.backends.cudnn.allow_tf32 == before
    assert not torch.is_autocast_enabled("cuda")


@pytest.mark.parametrize("engine", ["plain", "parallel"])
def test_a_profile_says_where_the_time_goes_and_changes_nothing(tiny: Experiment, tmp_path: Path, engine: str) -> None:
    watched = train(tiny, tmp_path / "run", engine=engine, profile=True)
    trace = json.loads((tmp_path / "run" / "trace.json").read_bytes())
    assert sum("convolution" in str(event.get("name")) for event in trace["traceEvents"]) > 8
    time = watched.summary["time"]
    assert set(time) == set(TIMES)
    assert all((time[name] > 0.0) == (name != "earlier") for name in TIMES)
    assert time["data"] < time["steps"]
    assert sum(time.values()) - time["data"] <= watched.summary["seconds"]
    unwatched = train(tiny)
    assert watched.summary["shared_accuracy"] == unwatched.summary["shared_accuracy"]
    for one, other in zip(watched.clients, unwatched.clients, strict=True):
        assert torch.equal(one.state.values, other.state.values)


def test_a_profile_of_a_run_too_short_to_warm_up(tiny: Experiment, tmp_path: Path) -> None:
    train(tiny.with_values(training={"steps": 2}), tmp_path / "run", profile=True)
    assert (tmp_path / "run" / "trace.json").exists()


def test_a_run_remembers_how_it_was_computed(tiny: Experiment, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tiny, tmp_path / "run", engine="parallel", workers=2, observer=StopAtLosses())
    start = read_events(tmp_path / "run")[0]
    assert (start["engine"], start["device"], start["precision"]) == ("parallel", "cpu", "float32")
    summary = resume(tmp_path / "run").summary
    assert (summary["engine"], summary["device"], summary["precision"]) == ("parallel", "cpu", "float32")


def test_the_profile_is_shown(tiny_file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(tiny_file), "--profile", "--out", str(tmp_path / "run")])
    assert result.exit_code == 0
    assert "Where the time went: steps" in result.stdout
    assert f"{tmp_path / 'run' / 'trace.json'}" in result.stdout

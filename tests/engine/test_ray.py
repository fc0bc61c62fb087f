"""The ray engine: where actors find a place, what is refused, and that a terminal sees nothing of Ray."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from manyheads import Experiment, resume, train
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.ray.cluster import _probe, share, shares
from manyheads.errors import ConfigurationError
from tests.engine.test_lost import decided
from tests.engine.test_parallel import gone, started

RAY = ResolvedOptions("ray")


@pytest.mark.parametrize(("units", "actors"), [(2, 8), (2, 3), (8, 8), (16, 3), (3, 7), (1, 1_000)])
def test_all_actors_find_a_place(units: int, actors: int) -> None:
    asked = share(units, actors)
    assert 0.0 < asked <= 1.0
    assert units * int(1.0 / asked + 1e-9) >= actors  # each unit holds a whole number of them


def test_what_an_actor_asks_for() -> None:
    free = {"CPU": 2.0, "GPU": 1.0}
    assert shares(free, 8, RAY) == {"num_cpus": 0.25}
    assert shares(free, 4, replace(RAY, device="cuda")) == {"num_cpus": 0.5, "num_gpus": 0.25}
    given = replace(RAY, device="cuda", gpus_per_client=0.1)
    assert shares(free, 4, given) == {"num_cpus": 0.5, "num_gpus": 0.1}
    for there, options, text in (
        ({"CPU": 0.5}, RAY, "no free CPU"),
        ({"CPU": 2.0}, replace(RAY, device="cuda"), "--device cuda: the cluster has no free GPU"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            shares(there, 4, options)


def test_without_ray(tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"Ray is not installed; pip install 'manyheads\[ray\]'"):
        train(tiny, tmp_path / "run", engine="ray")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_addresses_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("manyheads.engine.ray.cluster.CONNECT_SECONDS", 4.0)
    begun = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"--address 127.0.0.1:9: no Ray cluster") as raised:
        _probe("127.0.0.1:9")
    assert "\n" not in str(raised.value)
    assert time.monotonic() - begun < 15.0
    with pytest.raises(ConfigurationError, match=r"give HOST:PORT"):
        _probe("ray://somewhere:10001")


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_interrupted_from_a_terminal(tiny: Experiment, tmp_path: Path) -> None:
    """Output of Ray is not shown, the run is saved, and no process stays behind."""
    pytest.importorskip("ray")
    wanted = tiny.with_values(
        clients=2, training={"steps": 160, "log_every": 20}, algorithm={"pool_every": 20}, evaluate={"every": 80}
    )
    toml, folder = tmp_path / "tiny.toml", tmp_path / "run"
    toml.write_text(str(wanted))
    with started(toml, folder, "--engine", "ray") as (process, others):
        assert len(others) > 2
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        assert errors.strip().startswith("stopped at step")
        assert len(errors.strip().splitlines()) == 1
        assert "ray" not in said.lower()
        assert gone(others)
    assert decided(resume(folder, engine="plain")) == decided(train(wanted))

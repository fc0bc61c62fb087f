"""Small experiments that every test may start from."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from manyheads import Experiment
from manyheads.provenance import STATE_VARIABLE
from manyheads.report.mark import IN_FILE

# How long an example takes says nothing on a busy machine.
settings.register_profile("manyheads", deadline=None)
settings.load_profile("manyheads")

# As a run does: small models are slower with more threads, and on a busy machine much slower.
torch.set_num_threads(1)

TINY: dict[str, Any] = {
    "clients": 3,
    "data": {
        "source": "digits",
        "public_fraction": 0.3,
        "validation_fraction": 0.1,
        "primary_labels": {"assignment": "random", "per_client": 4},
        "augment": "none",
    },
    "model": {"backbone": "cnn", "width": 4, "auxiliary_heads": 2},
    "algorithm": {
        "name": "mhd",
        "pool_size": 3,
        "pool_every": 4,
        "confidence": "max_probability",
        "ramp": {"hold": 0.0, "rise": 0.5},
        "pull_ramp": {"hold": 0.0, "rise": 0.0},
    },
    "training": {
        "steps": 20,
        "batch_size": 16,
        "public_batch_size": 16,
        "learning_rate": 0.05,
        "warmup_steps": 2,
        "log_every": 6,
    },
    "evaluate": {"every": 10},
}


# A loss that is not a number, before a weight is none.
DIVERGES: dict[str, Any] = {
    "training": {"learning_rate": 1e3, "warmup_steps": 0, "balance": 0.0},
    "algorithm": {"pull": "sum", "nu_aux": 3.0},
}


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect no garbage while tests are imported, and later none of what they share: it was a sixth of all time."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if item.get_closest_marker("interpreted") and find_spec("triton") is None:
        pytest.skip("needs Triton: make kernels")


@pytest.fixture(autouse=True, scope="session")
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the record of the tests' runs apart from this user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_the_disk() -> Iterator[None]:
    """Do not wait until a disk has written: no test cuts the power. The processes that tests start do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def their_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a stranger's, whose models are made by code that lies in its folder."""
    from tests.strangers import IN_MODEL, make_run

    return make_run(tmp_path_factory.mktemp("theirs"), IN_MODEL)


@pytest.fixture
def stranger(their_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Unpack that run below the working folder, as `runs/stranger`."""
    from tests.strangers import forget_modules

    shutil.copytree(their_run, tmp_path / "runs" / "stranger")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Path("runs/stranger")
    forget_modules()


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are put together but not painted: painting them takes longer than a tiny run."""
    blank = b"\x89PNG" + IN_FILE
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(blank))


@pytest.fixture
def tiny() -> Experiment:
    """Three clients, twenty steps: a second or less."""
    return Experiment(**TINY)


@pytest.fixture
def tiny_file(tiny: Experiment, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(str(tiny))
    return path


@pytest.fixture
def short_demo(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration is of three clients and four steps."""
    short = tiny.with_values(training={"steps": 4, "log_every": 2}, evaluate={"every": 2})
    monkeypatch.setattr("manyheads.studies.demo.demo_experiment", lambda: short)


@pytest.fixture
def small_npz(tmp_path: Path) -> Path:
    """Colour images of 12 x 10 pixels, five classes told apart by brightness."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, samples in (("train", 200), ("test", 50)):
        labels = np.arange(samples) % 5
        noise = rng.integers(0, 40, size=(samples, 12, 10, 3))
        arrays[f"x_{part}"] = (noise + 40 * labels[:, None, None, None]).astype(np.uint8)
        arrays[f"y_{part}"] = labels
    path = tmp_path / "small.npz"
    np.savez(path, **arrays)
    return path

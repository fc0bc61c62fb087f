"""Small experiments that every test may start from."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from manyheads import Experiment

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
    "algorithm": {"name": "mhd", "pool_size": 3, "pool_every": 4, "ramp": {"hold": 0.0, "rise": 0.5}},
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


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if item.get_closest_marker("interpreted") and find_spec("triton") is None:
        pytest.skip("needs Triton: make kernels")


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

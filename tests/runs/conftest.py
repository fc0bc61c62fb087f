"""A stopped run and a finished one, made once; each test gets its own copies."""

import os
import shutil
from pathlib import Path

import pytest

from manyheads import Experiment, train
from manyheads.errors import Interrupted
from manyheads.training.observer import SilentObserver
from tests.conftest import TINY


class StopAt(SilentObserver):
    """Ask a run to stop after this many client-steps, as the first Ctrl-C does."""

    def __init__(self, client_steps: int) -> None:
        self.left = client_steps

    def progressed(self, client_steps: int) -> None:
        self.left -= client_steps
        if self.left == 0:
            os.kill(os.getpid(), 2)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    train(Experiment(**TINY), place / "ended")
    with pytest.raises(Interrupted) as interruption:
        train(Experiment(**TINY), place / "stopped", observer=StopAt(31))
    assert interruption.value.step == 10
    assert f"manyheads resume {place / 'stopped'}" in str(interruption.value)
    return place


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return Path(shutil.copytree(made / "ended", tmp_path / "run"))


@pytest.fixture
def stopped(made: Path, tmp_path: Path) -> Path:
    """Return a copy of a run of 20 steps that was stopped after 10."""
    return Path(shutil.copytree(made / "stopped", tmp_path / "stopped"))

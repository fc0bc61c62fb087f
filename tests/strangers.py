"""A run that somebody made elsewhere, with code in its folder that leaves a trace where it is run."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from manyheads import Experiment, train
from manyheads.provenance import STATE_VARIABLE
from tests.conftest import TINY

NAME = "runs.stranger.code"  # how that code is called from the folder in which `runs` lies
CODE = """
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from manyheads.algorithms.separate import Separate

with Path(__file__).with_name("ran").open("a") as trace:
    trace.write("x")


def surest(p):
    return p.amax(-1)


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


@dataclass(frozen=True)
class Alone(Separate):
    pass
"""
SHORT = {"clients": 2, "training": {"steps": 2}, "evaluate": {"every": 2}}
IN_MODEL = {"model": {"backbone": f"{NAME}:net"}, "algorithm": {"name": "separate"}}
IN_CONFIDENCE = {"algorithm": {"confidence": f"{NAME}:surest"}}
IN_ALGORITHM = {"algorithm": {"name": f"{NAME}:Alone"}}


def make_run(at: Path, values: Mapping[str, object]) -> Path:
    """Make a finished run below a folder, by somebody else than the user of these tests."""
    folder = at / "runs" / "stranger"
    folder.mkdir(parents=True)
    (folder / "code.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(at / "state"))
        patch.setattr(sys, "path", [*sys.path])
        patch.chdir(at)
        train(Experiment(**TINY).with_values(**SHORT).with_values(**values), at / "made")
    forget_modules()
    shutil.copytree(at / "made", folder, dirs_exist_ok=True)
    (folder / "ran").unlink()
    return folder


def forget_modules() -> None:
    """Import again what these tests import, as another process would."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("runs", "own_lab")]:
        del sys.modules[name]


def ran(folder: Path) -> bool:
    """Tell whether the code in the folder was run."""
    return (folder / "ran").exists()

"""What clients have heard is part of a save: a run that is stopped, and one that is not, end with the same bits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from manyheads import Experiment, resume, train
from manyheads.algorithms import recall, whom_to_ask
from manyheads.client.state import MEMORY
from manyheads.errors import Interrupted
from tests.runs.conftest import StopAt
from tests.runs.test_kill import outcome
from tests.runs.test_manifest import refused, replace_tensors

REMEMBERS: dict[str, Any] = {  # four epochs of the public set, two of them before the stop
    "algorithm": {"select": "mixture", "remember": 0.9, "pull": 0.3, "confidence": "density"},
    "data": {"public_fraction": 0.04, "private_fraction": 0.86},
    "training": {"balance": 1.0},
}


@pytest.fixture
def remembering(tiny: Experiment) -> Experiment:
    return tiny.with_values(**REMEMBERS)


class StopAfter(StopAt):
    """Several workers may report together, so that a number is passed, not met."""

    def progressed(self, client_steps: int) -> None:
        super().progressed(min(client_steps, self.left))


def stop(wanted: Experiment, folder: Path, **options: Any) -> Path:
    with pytest.raises(Interrupted) as interruption:
        train(wanted, folder, observer=StopAfter(31), **options)
    assert 8 <= interruption.value.step <= 16
    return folder


@pytest.mark.parametrize(
    "options", [{"engine": "plain"}, {"engine": "parallel", "workers": 2}], ids=["plain", "parallel"]
)
def test_a_stopped_run_that_remembers_ends_with_the_same_bits(
    options: dict[str, Any], remembering: Experiment, tmp_path: Path
) -> None:
    train(remembering, tmp_path / "whole", **options)
    resume(stop(remembering, tmp_path / "run", **options), **options)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    forgetful = remembering.with_values(algorithm={"remember": 0.0})
    train(forgetful, tmp_path / "forgetful")
    assert outcome(tmp_path / "forgetful")[2] != outcome(tmp_path / "whole")[2], "memory has no effect here"


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != f"{MEMORY}{name}"}


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: tensors | {f"{MEMORY}{name}": change(tensors[f"{MEMORY}{name}"]).contiguous()}


def test_a_stopped_run_asks_the_same_teachers(remembering: Experiment, tmp_path: Path) -> None:
    asking = remembering.with_values(algorithm={"ask": "surest"})
    train(asking, tmp_path / "whole")
    resume(stop(asking, tmp_path / "run"))
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    train(remembering, tmp_path / "drawn")
    assert outcome(tmp_path / "drawn")[2] != outcome(tmp_path / "whole")[2], "it makes no difference whom they ask"


UNSURE: dict[str, Callable[[Tensor], Tensor]] = {
    "not a number": lambda sure: sure * float("nan"),
    "another type": lambda sure: sure.double(),
    "fewer clients": lambda sure: sure[:, 1:],
}


@pytest.mark.parametrize("name", [whom_to_ask.LATELY, whom_to_ask.BEFORE])
def test_a_damaged_list_of_the_surest_is_refused_in_one_line(
    name: str, remembering: Experiment, tmp_path: Path
) -> None:
    run = stop(remembering.with_values(algorithm={"ask": "surest"}), tmp_path / "run")
    states = {path: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    damages = {"gone": without(name)} | {what: changed(name, change) for what, change in UNSURE.items()}
    for what, damage in damages.items():
        replace_tensors(run, damage)
        assert "what is kept of client-0 does not fit its model" in refused(resume, run), what
        for path, content in states.items():
            path.write_bytes(content)
    resume(run)


DAMAGES = {
    "gone": without(recall.VALUES),
    "negative": changed(recall.VALUES, lambda values: -values),
    "not a number": changed(recall.VALUES, lambda values: values * float("nan")),
    "another type": changed(recall.VALUES, lambda values: values.double()),
    "fewer samples": changed(recall.CLASSES, lambda classes: classes[1:]),
    "classes that do not exist": changed(recall.CLASSES, lambda classes: classes + 10),
}


def test_a_damaged_memory_is_refused_in_one_line(remembering: Experiment, tmp_path: Path) -> None:
    run = stop(remembering, tmp_path / "run")
    states = {path: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    for what, damage in DAMAGES.items():
        replace_tensors(run, damage)
        assert "what is kept of client-0 does not fit its model" in refused(resume, run), what
        for path, content in states.items():
            path.write_bytes(content)
    resume(run)

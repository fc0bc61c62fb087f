"""A run whose folder is moved, removed or replaced while it goes on: whatever lies there then is not touched."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from manyheads import Experiment, RunError, train
from manyheads.training.observer import SilentObserver


class After(SilentObserver):
    """Do something once, after this many client-steps."""

    def __init__(self, client_steps: int, action: Callable[[], object]) -> None:
        self._left, self._action = client_steps, action

    def progressed(self, client_steps: int) -> None:
        self._left -= client_steps
        if self._left == 0:
            self._action()


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("save_seconds", [60.0, 0.0], ids=["saved at its end", "saved at every edge"])
@pytest.mark.parametrize("how", ["moved", "removed", "linked"])
def test_another_run_in_its_place_is_left_alone(
    tiny: Experiment, run: Path, tmp_path: Path, how: str, save_seconds: float
) -> None:
    """Another run of the same experiment came to lie there, and has ended."""
    out, before = tmp_path / "out", content(run)

    def replace() -> None:
        if how == "removed":
            shutil.rmtree(out)
        else:
            out.rename(tmp_path / "away")
        if how == "linked":
            out.symlink_to(tmp_path / "away")
        else:
            run.rename(out)

    with pytest.raises(RunError, match=rf"^{out}: was moved, removed or replaced while this run went on") as error:
        train(tiny.with_values(training={"save_seconds": save_seconds}), out, observer=After(40, replace))
    assert "\n" not in str(error.value)
    if how != "linked":
        assert content(out) == {out / path.relative_to(run): data for path, data in before.items()}


def test_a_run_that_fails_removes_no_other(tiny: Experiment, run: Path, tmp_path: Path) -> None:
    """It would have removed its own folder, of which nothing can be resumed."""
    out, before = tmp_path / "out", list(content(run).values())

    def replace() -> None:
        out.rename(tmp_path / "away")
        run.rename(out)

    diverging = tiny.with_values(training={"learning_rate": 1e6, "warmup_steps": 0})
    with pytest.raises(RunError, match=r"lower training\.learning_rate .*; .*out: was moved, removed or replaced"):
        train(diverging, out, observer=After(1, replace))
    assert list(content(out).values()) == before
    assert (tmp_path / "away" / "experiment.toml").exists()


def test_a_folder_that_is_gone_is_not_made_again(tiny: Experiment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RunError, match="was moved, removed or replaced"):
        train(tiny, out, observer=After(40, lambda: shutil.rmtree(out)))
    assert not out.exists()


def test_a_trace_is_not_written_into_another_run(tiny: Experiment, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def replace() -> None:
        shutil.rmtree(out)
        run.rename(out)

    with pytest.raises(RunError, match="was moved, removed or replaced"):
        train(tiny, out, profile=True, observer=After(12, replace))
    assert not (out / "trace.json").exists()

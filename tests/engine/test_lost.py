"""A worker that is lost: the run goes back to its last save and ends with the same bits as one that lost nobody."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from manyheads import Experiment, resume, train
from manyheads.console import Bar
from manyheads.engine.base import Engine
from manyheads.engine.ray.engine import RayEngine
from manyheads.errors import ManyheadsError, TrainingError
from manyheads.runs.events import Event
from manyheads.training.observer import SilentObserver
from manyheads.training.result import Result
from tests.runs.test_kill import without_times


class Killer(SilentObserver):
    """Kills a part of those who train, when so many steps have been recorded."""

    def __init__(self, victim: Callable[[], int], *steps: int) -> None:
        self.victim, self.steps = victim, list(steps)
        self.back: list[tuple[int, str]] = []

    def happened(self, event: Event) -> None:
        if self.steps and event["event"] == "losses" and event["step"] >= self.steps[0]:
            del self.steps[0]
            os.kill(self.victim(), signal.SIGKILL)

    def went_back(self, step: int, why: str) -> None:
        self.back.append((step, why))


def worker() -> int:
    """Return a worker process of the parallel engine."""
    pid = multiprocessing.active_children()[-1].pid
    assert pid is not None
    return pid


def decided(result: Result) -> dict[str, Any]:
    """Return everything that a run decides."""
    summary: dict[str, Any] = without_times(result.summary)
    weights = [client.state.values.numpy().tobytes() for client in result.clients]
    return {**summary, "engine": None, "weights": weights}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    from tests.conftest import TINY

    return decided(train(Experiment(**TINY)))


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "memory"])
@pytest.mark.parametrize(("save_seconds", "back"), [(0.0, 8), (60.0, 0)], ids=["saved", "not saved"])
def test_a_killed_worker(
    tiny: Experiment, undisturbed: dict[str, Any], tmp_path: Path, folder: bool, save_seconds: float, back: int
) -> None:
    killer, place = Killer(worker, 10), tmp_path / "run" if folder else None
    experiment = tiny.with_values(training={"save_seconds": save_seconds})
    result = train(experiment, place, engine="parallel", workers=2, observer=killer)
    assert [step for step, _ in killer.back] == [back]
    assert "was killed (SIGKILL); if memory ran out" in killer.back[0][1]
    assert "client-" in killer.back[0][1]
    assert decided(result) == undisturbed
    assert multiprocessing.active_children() == []


def test_killed_in_the_middle_of_a_window(tiny: Experiment, undisturbed: dict[str, Any]) -> None:
    class AtOnce(Killer):
        def progressed(self, client_steps: int) -> None:
            if self.steps:
                del self.steps[0]
                os.kill(self.victim(), signal.SIGKILL)

    killer = AtOnce(worker, 20)
    assert decided(train(tiny, engine="parallel", workers=2, observer=killer)) == undisturbed
    assert len(killer.back) == 1


@pytest.mark.parametrize(
    ("save_seconds", "where"), [(60.0, "before the first save"), (0.0, "after the save at step 18")]
)
def test_lost_twice_at_the_same_place(tiny: Experiment, save_seconds: float, where: str) -> None:
    killer = Killer(worker, *[20] * 9)
    experiment = tiny.with_values(training={"save_seconds": save_seconds})
    with pytest.raises(TrainingError, match=f"the second loss {where}, so the run gives up"):
        train(experiment, engine="parallel", workers=2, observer=killer)
    assert len(killer.back) == 1
    assert multiprocessing.active_children() == []


def test_lost_at_two_places(tiny: Experiment, undisturbed: dict[str, Any]) -> None:
    killer = Killer(worker, 6, 14)
    experiment = tiny.with_values(training={"save_seconds": 0.0})
    assert decided(train(experiment, engine="parallel", workers=2, observer=killer)) == undisturbed
    assert [step for step, _ in killer.back] == [4, 12]


def test_a_run_changes_its_engine(tiny: Experiment, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    class Stop(SilentObserver):
        def happened(self, event: Event) -> None:
            if event["event"] == "losses" and event["step"] == 12:
                os.kill(os.getpid(), signal.SIGINT)

    for first, then in (("plain", "parallel"), ("parallel", "plain")):
        folder = tmp_path / first
        with pytest.raises(ManyheadsError, match="stopped at step 10"):
            train(tiny, folder, engine=first, observer=Stop())
        assert decided(resume(folder, engine=then)) == undisturbed
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_here")
def test_a_killed_actor(
    tiny: Experiment, undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    engines: list[RayEngine] = []
    place = RayEngine._place

    def remembered(self: RayEngine, *arguments: Any) -> None:
        engines.append(self)
        place(self, *arguments)

    def actor() -> int:
        return int(ray.get(engines[-1]._actors[0].__ray_call__.remote(lambda _: os.getpid())))

    monkeypatch.setattr(RayEngine, "_place", remembered)
    killer, folder = Killer(actor, 10), tmp_path / "run"
    result = train(tiny.with_values(training={"save_seconds": 0.0}), folder, engine="ray", observer=killer)
    assert [step for step, _ in killer.back] == [8]
    assert killer.back[0][1].startswith("the Ray actor of client-")
    assert "\n" not in killer.back[0][1]
    assert decided(result) == undisturbed
    assert len(engines) == 2


def test_what_is_lost_is_not_counted(tiny: Experiment) -> None:
    """Neither by a progress bar nor in where the time went."""

    class Counter(Bar):
        taken = 0
        due = True

        def advance(self, client_steps: int) -> None:
            self.taken += client_steps

        def progressed(self, client_steps: int) -> None:
            super().progressed(client_steps)
            if self.due and self.step == 12:
                self.due = False
                os.kill(worker(), signal.SIGKILL)

    watcher = Counter(Console(quiet=True), "run")
    summary = train(tiny, engine="parallel", workers=2, observer=watcher).summary
    assert not watcher.due
    assert watcher.taken == 20 * 3
    assert sum(seconds for name, seconds in summary["time"].items() if name != "data") <= summary["seconds"] + 0.01


def test_where_the_time_of_a_resumed_run_went(tiny: Experiment, tmp_path: Path) -> None:
    class Stop(SilentObserver):
        def happened(self, event: Event) -> None:
            if event["event"] == "losses" and event["step"] == 12:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(ManyheadsError, match="stopped at step 10"):
        train(tiny, tmp_path / "run", observer=Stop())
    summary = resume(tmp_path / "run").summary
    assert summary["time"]["earlier"] > 0.0
    assert sum(seconds for name, seconds in summary["time"].items() if name != "data") <= summary["seconds"] + 0.01


def test_a_save_in_memory_sends_names_only(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    states = Engine.states

    def spied(self: Engine, known: Any, **pools: bool) -> Any:
        asked.append(known)
        return states(self, known, **pools)

    monkeypatch.setattr(Engine, "states", spied)
    train(tiny.with_values(training={"save_seconds": 0.0}), engine="parallel", workers=2)
    assert any(asked)
    assert not any(isinstance(known, dict) for known in asked)

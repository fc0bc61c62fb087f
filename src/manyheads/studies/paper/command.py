"""What `manyheads reproduce` does: list, run what is missing, show, and write the page."""

import contextlib
import itertools
from collections.abc import Callable, Sequence

from manyheads.algorithms import with_defaults
from manyheads.config.experiment import Experiment
from manyheads.console import Screen
from manyheads.studies.paper.again import Again
from manyheads.studies.paper.arguments import Request, check_data, chosen, only_cell
from manyheads.studies.paper.estimate import seconds_for, try_out
from manyheads.studies.paper.jobs import CellFailed, CellWorkerLost, Job, JobList
from manyheads.studies.paper.results import read_results
from manyheads.studies.paper.runner import RunnerObserver, run_all
from manyheads.studies.paper.show import result_text, show


def reproduce(screen: Screen, request: Request) -> None:
    """Run what is missing, then show each table with its claims and draw its figure."""
    names = chosen(request)
    planned = request.plan(names, read_results(request.results, request.scale.name))
    check_data(planned.jobs, request)
    if request.steps is not None:
        return try_all(screen, planned.jobs, request.steps)
    try:
        run(screen, planned, request)
    except CellFailed:
        show(screen, names, request)  # the others can be seen
        raise
    show(screen, names, request)


def one_cell(request: Request) -> Experiment:
    """The cell that --only names, with all keys of its algorithm, to start from with something of one's own."""
    cell = request.scale.at(only_cell(request), request.data)
    cell = cell.with_values(evaluate={"every": max(1, cell.training.steps // 6)})  # cells only look at the end
    return cell.with_values(algorithm=with_defaults(cell.algorithm, request.scale.classes).model_dump())


class RunnerOnScreen(RunnerObserver):
    """Notes are said, work moves the bar."""

    def __init__(self, screen: Screen, move: Callable[[float], None]) -> None:
        self._screen, self._move = screen, move

    def progressed(self, work: float) -> None:
        self._move(work)

    def noted(self, text: str) -> None:
        self._screen.say(f"note: {text}")

    def stopping(self) -> None:
        self._screen.say("Finishing windows, then saving. Press Ctrl-C again to leave at once.")


def run(screen: Screen, planned: JobList, request: Request) -> None:
    """Run what is missing, and say what comes of it as it comes."""
    again = Again(request) if request.again else None
    jobs = planned.jobs if again is None else again.still_to_do(planned.jobs)
    stale = f" ({planned.stale} of these are stored, but by other code; --keep takes them as they are)"
    begun = sum((job.folder / "experiment.toml").exists() for job in jobs)
    go_on = f", {begun} of them go on where they stopped" if begun and not request.again else ""
    done = len(planned.jobs) - len(jobs)
    before = f", {done} were run again before this was stopped" if done else ""
    runs = "1 run" if len(jobs) == 1 else f"{len(jobs)} runs"
    screen.say(f"{runs} to do{stale if planned.stale else ''}{go_on}{before}, {planned.stored} stored")
    slow = request.scale.for_gpu and request.options.engine != "cuda"
    if jobs and (request.scale.estimated or slow):
        screen.say(estimate(jobs))
    with screen.work(request.scale.name, sum(job.work for job in jobs)) as move:
        results = run_all(jobs, request.results, at_once=request.at_once, watching=RunnerOnScreen(screen, move))
        with contextlib.closing(results):
            try:
                for number, result in enumerate(results, start=1):
                    screen.say(f"{number}/{len(jobs)} {result_text(result)}")
                    if again is not None:
                        again.ended(result)
            except CellWorkerLost:
                raise  # the same command goes on
            except CellFailed:
                if again is not None:
                    again.forget(planned.jobs)  # the others have ended
                raise
    if again is not None:
        again.forget(planned.jobs)


def estimate(jobs: Sequence[Job]) -> str:
    """How long all of it takes here, from a few steps of each kind of model."""

    def models(job: Job) -> str:
        return str(job.experiment.model.model_copy(update={"auxiliary_heads": 0}))

    total = 0.0
    for _, group in itertools.groupby(sorted(jobs, key=models), models):
        alike = list(group)
        total += seconds_for(alike[0]) * sum(job.work for job in alike) / alike[0].work
    hours = total / 3600
    shown = f"{hours:,.1f} hours" if hours < 1000 else f"{hours:,.0f} hours ({hours / 24 / 365:,.1f} years)"
    return f"About {shown} on this hardware, from a few steps of each kind of model."


def try_all(screen: Screen, jobs: Sequence[Job], steps: int) -> None:
    """A few steps of every cell: that it loads, checks and starts."""
    for number, job in enumerate(jobs, start=1):
        screen.say(f"{number}/{len(jobs)} {job.cell}: {steps} steps in {try_out(job, steps):.1f} s")
    screen.say("Nothing is stored: so few steps say nothing about accuracy.")

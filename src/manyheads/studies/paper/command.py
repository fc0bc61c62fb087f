"""The command `manyheads reproduce`: it runs what is missing, then shows it."""

import contextlib
import itertools
from collections.abc import Callable, Sequence

from manyheads.algorithms import with_defaults
from manyheads.config.experiment import Experiment
from manyheads.config.knobs import RunSize
from manyheads.console import Screen
from manyheads.studies.paper.arguments import ReproduceRequest, check_data, chosen_reproductions, only_cell
from manyheads.studies.paper.estimate import estimated_seconds, try_out
from manyheads.studies.paper.jobs import CellFailed, CellWorkerLost, Job, JobList
from manyheads.studies.paper.rerun import RerunLog
from manyheads.studies.paper.results import read_results
from manyheads.studies.paper.runner import RunnerObserver, run_all
from manyheads.studies.paper.show import result_text, show_stored


def reproduce(screen: Screen, request: ReproduceRequest) -> None:
    """Run what is missing, then show each table with its claims and draw its figure."""
    names = chosen_reproductions(request)
    planned = request.plan_jobs(names, read_results(request.results, request.scale.name))
    check_data([job.experiment for job in planned.jobs], request)
    if request.steps is not None:
        return try_cells(screen, planned.jobs, request.steps)
    try:
        run_missing(screen, planned, request)
    except CellFailed:
        show_stored(screen, names, request)  # the others can be seen
        raise
    show_stored(screen, names, request)


def cell_to_change(request: ReproduceRequest) -> Experiment:
    """Return the cell that --only names, with all keys of its algorithm, as a start for experiments of one's own."""
    cell = request.scale.with_data(only_cell(request), request.data)
    cell = cell.with_values(evaluate={"every": max(1, cell.training.steps // 6)})  # cells are evaluated at the end only
    training = cell.training
    size = RunSize(
        training.steps,
        cell.clients,
        request.scale.classes,
        balanced=training.balance > 0.0,
        learning_rate=training.learning_rate,
    )
    return cell.with_values(algorithm=with_defaults(cell.algorithm, size).model_dump())


class RunnerOnScreen(RunnerObserver):
    """An observer that shows notes as lines and work as a progress bar."""

    def __init__(self, screen: Screen, move: Callable[[float], None]) -> None:
        self._screen, self._move = screen, move

    def progressed(self, work: float) -> None:
        self._move(work)

    def noted(self, text: str) -> None:
        self._screen.say(f"note: {text}")

    def stopping(self) -> None:
        self._screen.say("Stopping: runs are saved as their windows began. Press Ctrl-C again to leave at once.")


def run_missing(screen: Screen, planned: JobList, request: ReproduceRequest) -> None:
    """Run the missing cells, and report each result as it comes."""
    rerun_log = RerunLog(request) if request.again else None
    jobs = planned.jobs if rerun_log is None else rerun_log.remaining(planned.jobs)
    stale = f" ({planned.stale} of these are stored, but other code made them; --keep accepts them)"
    begun = sum((job.folder / "experiment.toml").exists() for job in jobs)
    continued = f", {begun} of them continue where they stopped" if begun and not request.again else ""
    done = len(planned.jobs) - len(jobs)
    before = f", {done} were run again before this was stopped" if done else ""
    runs = "1 run" if len(jobs) == 1 else f"{len(jobs)} runs"
    screen.say(f"{runs} to do{stale if planned.stale else ''}{continued}{before}, {planned.stored} stored")
    slow = request.scale.for_gpu and request.options.engine != "cuda"
    if jobs and (request.scale.estimated or slow):
        screen.say(estimate_text(jobs))
    with screen.work(request.scale.name, sum(job.work for job in jobs)) as move:
        results = run_all(jobs, request.results, at_once=request.at_once, observer=RunnerOnScreen(screen, move))
        with contextlib.closing(results):
            try:
                for number, result in enumerate(results, start=1):
                    screen.say(f"{number}/{len(jobs)} {result_text(result)}")
                    if rerun_log is not None:
                        rerun_log.record(result)
            except CellWorkerLost:
                raise  # the same command continues
            except CellFailed:
                if rerun_log is not None:
                    rerun_log.forget(planned.jobs)  # the others have ended
                raise
    if rerun_log is not None:
        rerun_log.forget(planned.jobs)


def estimate_text(jobs: Sequence[Job]) -> str:
    """Say how long all jobs take here, judging by a few steps of each kind of model."""

    def models(job: Job) -> str:
        return str(job.experiment.model.model_copy(update={"auxiliary_heads": 0}))

    total = 0.0
    for _, group in itertools.groupby(sorted(jobs, key=models), models):
        alike = list(group)
        total += estimated_seconds(alike[0]) * sum(job.work for job in alike) / alike[0].work
    hours = total / 3600
    shown = f"{hours:,.1f} hours" if hours < 1000 else f"{hours:,.0f} hours ({hours / 24 / 365:,.1f} years)"
    return f"About {shown} on this hardware, from a few steps of each kind of model."


def try_cells(screen: Screen, jobs: Sequence[Job], steps: int) -> None:
    """Take a few steps of every cell, to see that it loads, passes its checks and starts."""
    for number, job in enumerate(jobs, start=1):
        screen.say(f"{number}/{len(jobs)} {job.cell}: {steps} steps in {try_out(job, steps):.1f} s")
    screen.say("Nothing is stored: so few steps say nothing about accuracy.")

"""What `manyheads reproduce` does: list, run what is missing, show, and write the page."""

import contextlib
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from manyheads.algorithms import with_defaults
from manyheads.checks import check
from manyheads.console import Screen
from manyheads.errors import ConfigurationError, DataError
from manyheads.experiment import Experiment
from manyheads.files import write_whole
from manyheads.report import plots
from manyheads.report.tables import keys_text
from manyheads.reproduce import NAMES
from manyheads.reproduce.base import Found, Reproduction
from manyheads.reproduce.figures import FIGURES
from manyheads.reproduce.page import besides, claims, made_with, picture, results_page, table, warnings, worth_drawing
from manyheads.reproduce.request import Request, check_data, chosen, elsewhere
from manyheads.reproduce.results import Result, key_of, read_results, same_numbers
from manyheads.reproduce.runner import (
    CellFailed,
    Job,
    Plan,
    Watching,
    WorkerLost,
    run_all,
    seconds_for,
    try_out,
)
from manyheads.reproduce.scales import SCALES, Scale


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


def of_other_data(names: Sequence[Reproduction], request: Request) -> int:
    """How many of the stored results that are shown were not made of the data that are there."""
    scale, of, other = request.scale, dict[str, str](), set[tuple[str, int]]()
    if scale.mhd.data.path is None:
        return 0
    stored = read_results(request.results, scale.name)
    with contextlib.suppress(ConfigurationError, DataError):  # what is stored can be shown without any data
        for one in names:
            for cell, by_seed in one.found(scale, stored).part(request.only, request.seeds).cells.items():
                for result in by_seed.values():
                    if result.meant_data not in of:
                        given = scale.at(one.cells(scale)[cell], request.data)
                        of[result.meant_data] = check(given).dataset.fingerprint()
                    if result.data not in (None, of[result.meant_data]):
                        other.add((result.key, result.seed))
    return len(other)


def list_table(scale: Scale, results: Path) -> Table:
    """Every name, where it is in the paper, and how much of it is stored."""
    stored = read_results(results, scale.name)
    title = f"manyheads reproduce NAME --scale {scale.name}; results are in {results}{elsewhere(results)}"
    made = Table("name", "in the paper", "what", "cells", "runs that are stored", title=title)
    for name, one in NAMES.items():
        if scale.name not in one.scales:
            made.add_row(name, one.where, one.title, "-", "")
            continue
        found = one.found(scale, stored)
        seeds = one.seeds_complete(scale, found)
        runs = [result for by_seed in found.part((), seeds).cells.values() for result in by_seed.values()]
        other = sum(not same_numbers(result.code) for result in runs)
        have = f"{len(runs)} of {seeds * len(found.cells)}" + (f", {other} by other code" if other else "")
        made.add_row(name, one.where, one.title, str(len(found.cells)), have)
    return made


def cells_table(one: Reproduction, scale: Scale, results: Path) -> Table:
    """Each cell, and in which keys it is not what all cells of the scale are made from."""
    made = Table(
        "cell", "other keys than MHD has at this scale", "seeds that are stored", title=one.name, caption=scale.about
    )
    cells = one.cells(scale)
    for cell, by_seed in one.found(scale, read_results(results, scale.name)).cells.items():
        made.add_row(cell, keys_text(scale.other_keys(cells[cell])), ", ".join(map(str, by_seed)))
    return made


def one_cell(request: Request) -> Experiment:
    """The cell that --only names, with all keys of its algorithm, to start from with something of one's own."""
    found = {name: cell for one in chosen(request) for name, cell in one.cells(request.scale).items()}
    if len(request.only) != 1:
        raise ConfigurationError(f'--toml: say which cell with --only, such as "{next(iter(found))}"')
    cell = request.scale.at(found[request.only[0]], request.data)
    cell = cell.with_values(evaluate={"every": max(1, cell.training.steps // 6)})  # cells only look at the end
    return cell.with_values(algorithm=with_defaults(cell.algorithm, request.scale.classes).model_dump())


class OnScreen(Watching):
    """Notes are said, work moves the bar."""

    def __init__(self, screen: Screen, move: Callable[[float], None]) -> None:
        self._screen, self._move = screen, move

    def progressed(self, work: float) -> None:
        self._move(work)

    def noted(self, text: str) -> None:
        self._screen.say(f"note: {text}")

    def stopping(self) -> None:
        self._screen.say("Finishing windows, then saving. Press Ctrl-C again to leave at once.")


def run(screen: Screen, planned: Plan, request: Request) -> None:
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
    slow = request.scale.for_gpu and request.how["engine"] != "cuda"
    if jobs and (request.scale.estimated or slow):
        screen.say(estimate(jobs))
    with screen.work(request.scale.name, sum(job.work for job in jobs)) as move:
        results = run_all(jobs, request.results, at_once=request.at_once, watching=OnScreen(screen, move))
        with contextlib.closing(results):
            try:
                for number, result in enumerate(results, start=1):
                    screen.say(f"{number}/{len(jobs)} {result_text(result)}")
                    if again is not None:
                        again.ended(result)
            except WorkerLost:
                raise  # the same command goes on
            except CellFailed:
                if again is not None:
                    again.forget(planned.jobs)  # the others have ended
                raise
    if again is not None:
        again.forget(planned.jobs)


class Again:
    """What --again has run so far, in a file, until all that was asked for is done: so it goes on after a stop."""

    def __init__(self, request: Request) -> None:
        self._place = request.out / request.scale.name / "again.json"
        self._into = str(request.results.resolve())
        read: dict[str, list[str]] = json.loads(self._place.read_bytes()) if self._place.exists() else {}
        self._done = read  # by where results are stored

    def still_to_do(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if self._name(job) not in self._done.get(self._into, [])]

    def ended(self, result: Result) -> None:
        """It is stored."""
        self._done.setdefault(self._into, []).append(f"{result.key} {result.seed}")
        self._write()

    def forget(self, jobs: Sequence[Job]) -> None:
        """Everything was run; of others that were stopped nothing is forgotten."""
        names = set(map(self._name, jobs))
        self._done[self._into] = [name for name in self._done.get(self._into, []) if name not in names]
        self._write()

    def _write(self) -> None:
        if any(self._done.values()):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._place, json.dumps(self._done).encode())
        else:
            self._place.unlink(missing_ok=True)

    @staticmethod
    def _name(job: Job) -> str:
        return f"{key_of(job.experiment)} {job.experiment.seed}"


def result_text(result: Result) -> str:
    shared = " ".join(f"{100 * value:.1f}" for value in result.shared_accuracy)
    warned = "; a head has collapsed" if result.collapsed else ""
    return (
        f"{result.cell}, seed {result.seed}: private {100 * result.private_accuracy[0]:.1f} %, "
        f"shared by head {shared} % ({result.seconds:.0f} s){warned}"
    )


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


def show(screen: Screen, names: Sequence[Reproduction], request: Request) -> None:
    """The table, the claims and the picture of each."""
    stored = read_results(request.results, request.scale.name)
    if other := of_other_data(names, request):
        screen.say(
            f"note: {other} of these stored results were made of other data than those in {request.data or Path()}; "
            "with --results FOLDER everything is run with yours"
        )
    for one in names:
        found = one.found(request.scale, stored).part(request.only, request.seeds)
        if any(found.cells.values()):
            _show_one(screen, one, found, request)
        elif found.cells:
            place = request.results / request.scale.name
            screen.say(f"{one.name}: nothing of this is stored in {place}{elsewhere(request.results)}")


def _show_one(screen: Screen, one: Reproduction, found: Found, request: Request) -> None:
    printed = "; in brackets what the paper printed, at its own scale" if one.printed else ""
    screen.show_wide(*table(one, found), f"{one.name}, {request.scale.name}: {one.title}{printed}")
    screen.say(made_with(found))
    if (beside := besides(one, found)) and not request.only:
        numbers = Table("besides", "here", "the paper")
        for line in beside:
            numbers.add_row(*line)
        screen.show(numbers)
    if one.claims and not request.only:  # a claim is about a table
        judged = Table("claim", "here", "its parts")
        for text, answer, parts in claims(one, request.scale, found):
            judged.add_row(text, answer, "\n".join(parts))
        screen.show(judged)
    for text in warnings(found):
        screen.say(text)
    if worth_drawing(found):
        screen.say(f"Picture: {draw(one, request.scale, found, request.out)}")


def draw(one: Reproduction, scale: Scale, found: Found, folder: Path) -> Path:
    place = folder / picture(one, scale)
    folder.mkdir(parents=True, exist_ok=True)
    plots.save(FIGURES[one.figure](one, found), place)
    return place


def write_page(page: Path, results: Path) -> int:
    """The page of all stored results, and its pictures beside it; says how many pictures."""
    if page.is_dir() or not page.suffix:
        raise ConfigurationError(f"--page {page}: give a file, such as {page / 'results.md'}")
    stored = {name: read_results(results, name) for name in SCALES}
    drawn = 0
    for one, scale in itertools.product(NAMES.values(), SCALES.values()):
        if worth_drawing(found := one.found(scale, stored[scale.name])):
            draw(one, scale, found, page.parent / "images")
            drawn += 1
    write_whole(page, results_page(list(NAMES.values()), stored).encode())
    return drawn

"""What `manyheads reproduce` does: list, run what is missing, show, and write the page."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.table import Table

from manyheads.console import Screen
from manyheads.data.sources.packs import read_card
from manyheads.errors import ConfigurationError, DataError
from manyheads.experiment import nearest
from manyheads.files import write_whole
from manyheads.report import plots
from manyheads.reproduce import NAMES
from manyheads.reproduce.base import Found, Reproduction
from manyheads.reproduce.figures import FIGURES
from manyheads.reproduce.page import claims, collapsed, picture, results_page, table
from manyheads.reproduce.results import Result, read_results
from manyheads.reproduce.runner import Job, Plan, find, run_all, seconds_for, try_out
from manyheads.reproduce.scales import SCALES, Scale

IN_THE_REPOSITORY = Path("experiments/mhd/results")
ELSEWHERE = Path("runs/reproduce/results")


def results_folder(given: Path | None) -> Path:
    """Where results are stored: those of the repository where one stands in it."""
    return given or (IN_THE_REPOSITORY if IN_THE_REPOSITORY.is_dir() else ELSEWHERE)


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise ConfigurationError(f"--scale {name}: unknown scale; {nearest(name, SCALES)}")
    return SCALES[name]


def reproductions_named(names: Sequence[str], scale: Scale, only: Sequence[str]) -> list[Reproduction]:
    """Those that were asked for, at a scale where they make sense; "all" are all of these."""
    if not names:
        raise ConfigurationError("NAME: missing; manyheads reproduce --list shows what there is")
    if "all" in names:
        return [one for one in NAMES.values() if scale.name in one.scales]
    for name in names:
        if name not in NAMES:
            raise ConfigurationError(f"{name}: not a table or figure of the paper; {nearest(name, [*NAMES, 'all'])}")
        if scale.name not in NAMES[name].scales:
            known = " or ".join(NAMES[name].scales)
            raise ConfigurationError(f"{name}: makes no sense at the scale {scale.name}; take --scale {known}")
    chosen = [NAMES[name] for name in names]
    cells = {cell for one in chosen for cell in one.cells(scale)}
    for cell in only:
        if cell not in cells:
            raise ConfigurationError(f'--only "{cell}": there is no such cell; {nearest(cell, cells)}')
    return chosen


def check_data(scale: Scale, data: Path | None) -> None:
    """Refuse before anything is started what cannot be read."""
    for name in scale.files:
        if not ((data or Path()) / name).is_file():
            raise DataError(f"{(data or Path()) / name}: not there; give its folder with --data (docs/data.md)")
    if scale.mhd.data.source == "packed":
        if data is None:
            raise ConfigurationError("--data: missing; give the folder that `manyheads pack` made of ImageNet")
        read_card(data)


def engine_for(scale: Scale, engine: str | None, device: str | None) -> str:
    """The GPU where there is one and it is worth it."""
    if engine is not None:
        return engine
    return "cuda" if scale.name != "digits" and device != "cpu" and torch.cuda.is_available() else "plain"


def list_table(scale: Scale, results: Path) -> Table:
    """Every name, where it is in the paper, and how much of it is stored."""
    stored = read_results(results, scale.name)
    made = Table("name", "in the paper", "what", f"cells, {scale.name}", "stored", title="manyheads reproduce NAME")
    for name, one in NAMES.items():
        if scale.name not in one.scales:
            made.add_row(name, one.where, one.title, "-", "")
            continue
        found = find(one, scale, stored)
        have = sum(bool(by_seed) for by_seed in found.cells.values())
        made.add_row(name, one.where, one.title, str(len(found.cells)), str(have))
    return made


def cells_table(one: Reproduction, scale: Scale, results: Path) -> Table:
    made = Table("cell", "seeds that are stored", title=f"{one.name}, {scale.name}: {scale.about}")
    for cell, by_seed in find(one, scale, read_results(results, scale.name)).cells.items():
        made.add_row(cell, ", ".join(map(str, by_seed)))
    return made


def run(screen: Screen, planned: Plan, scale: Scale, results: Path, at_once: int | None) -> None:
    """Run what is missing, and say what comes of it as it comes."""
    jobs = planned.jobs
    stale = f" ({planned.stale} of these are stored, but by other code; --keep takes them as they are)"
    screen.say(f"{len(jobs)} runs to do{stale if planned.stale else ''}, {planned.stored} stored")
    if not jobs:
        return
    if scale.name == "imagenet":
        screen.say(estimate(jobs))
    with screen.work(f"{scale.name}", sum(job.work for job in jobs)) as progressed:
        for number, result in enumerate(run_all(jobs, results, at_once=at_once, progressed=progressed), start=1):
            screen.say(f"{number}/{len(jobs)} {result_text(result)}")


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
        total += seconds_for(alike[0]) * sum(job.work * job.share for job in alike) / alike[0].work
    hours = total / 3600
    shown = f"{hours:,.1f} hours" if hours < 1000 else f"{hours:,.0f} hours ({hours / 24 / 365:,.1f} years)"
    return f"About {shown} on this hardware, from a few steps of each kind of model."


def try_all(screen: Screen, jobs: Sequence[Job], steps: int) -> None:
    """A few steps of every cell: that it loads, checks and starts."""
    for number, job in enumerate(jobs, start=1):
        screen.say(f"{number}/{len(jobs)} {job.cell}: {steps} steps in {try_out(job, steps):.1f} s")
    screen.say("Nothing is stored: so few steps say nothing about accuracy.")


def show(screen: Screen, one: Reproduction, scale: Scale, results: Path, out: Path) -> None:
    """The table, the claims and the picture of a reproduction."""
    found = find(one, scale, read_results(results, scale.name))
    if not any(found.cells.values()):
        return
    header, lines = table(one, found)
    made = Table(*header, title=f"{one.name}: {one.title}. In percent; in brackets the paper's, on ImageNet")
    for line in lines:
        made.add_row(*line)
    screen.show(made)
    if one.claims:
        judged = Table("claim", "here", "by")
        for line in claims(one, found):
            judged.add_row(*(entry.replace("**", "") for entry in line))
        screen.show(judged)
    if warned := collapsed(found):
        screen.say(warned)
    screen.say(f"Picture: {draw(one, scale, found, out)}")


def draw(one: Reproduction, scale: Scale, found: Found, folder: Path) -> Path:
    place = folder / picture(one, scale)
    folder.mkdir(parents=True, exist_ok=True)
    plots.save(FIGURES[one.figure](one, found), place)
    return place


def write_page(page: Path, results: Path) -> int:
    """The page of all stored results, and its pictures beside it; says how many pictures."""
    stored = {name: read_results(results, name) for name in SCALES}
    drawn = 0
    for one, scale in itertools.product(NAMES.values(), SCALES.values()):
        if scale.name in one.scales and any((found := find(one, scale, stored[scale.name])).cells.values()):
            draw(one, scale, found, page.parent / "images")
            drawn += 1
    write_whole(page, results_page(list(NAMES.values()), stored).encode())
    return drawn

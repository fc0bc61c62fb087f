"""What is stored, shown on the screen and as a page."""

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from manyheads.console import Screen
from manyheads.errors import ConfigurationError, DataError
from manyheads.files import write_whole
from manyheads.report.figures import save_figure
from manyheads.report.text import keys_text
from manyheads.setup.resolve import resolve
from manyheads.studies.paper.arguments import Request, elsewhere
from manyheads.studies.paper.code_of_numbers import same_numbers
from manyheads.studies.paper.figures import FIGURES
from manyheads.studies.paper.measures import TableResults
from manyheads.studies.paper.names import NAMES
from manyheads.studies.paper.page import (
    besides,
    claims,
    made_with,
    picture,
    results_page,
    table,
    warnings,
    worth_drawing,
)
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import CellResult, read_results
from manyheads.studies.paper.scales import SCALES, Scale


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
                        of[result.meant_data] = resolve(given).dataset.fingerprint()
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


def result_text(result: CellResult) -> str:
    shared = " ".join(f"{100 * value:.1f}" for value in result.shared_accuracy)
    warned = "; a head has collapsed" if result.collapsed else ""
    return (
        f"{result.cell}, seed {result.seed}: private {100 * result.private_accuracy[0]:.1f} %, "
        f"shared by head {shared} % ({result.seconds:.0f} s){warned}"
    )


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


def _show_one(screen: Screen, one: Reproduction, found: TableResults, request: Request) -> None:
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


def draw(one: Reproduction, scale: Scale, found: TableResults, folder: Path) -> Path:
    place = folder / picture(one, scale)
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(FIGURES[one.figure](one, found), place)
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

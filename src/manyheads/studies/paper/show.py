"""Showing stored results, on the screen and as a page."""

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
from manyheads.studies.paper.arguments import ReproduceRequest, check_page, hint_elsewhere
from manyheads.studies.paper.code_of_numbers import same_numbers
from manyheads.studies.paper.figures import FIGURES
from manyheads.studies.paper.measures import TableResults
from manyheads.studies.paper.names import REPRODUCTIONS
from manyheads.studies.paper.page import (
    claim_rows,
    derived_rows,
    has_picture,
    picture_name,
    provenance_text,
    results_page,
    table_rows,
    warning_texts,
)
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import CellResult, read_results
from manyheads.studies.paper.scales import SCALES, Scale


def count_of_other_data(names: Sequence[Reproduction], request: ReproduceRequest) -> int:
    """Count the shown results that were made from data other than those given."""
    scale, of, other = request.scale, dict[str, str](), set[tuple[str, int]]()
    if scale.mhd.data.path is None:
        return 0
    stored = read_results(request.results, scale.name)
    with contextlib.suppress(ConfigurationError, DataError):  # what is stored can be shown without any data
        for one in names:
            for cell, by_seed in one.results(scale, stored).select(request.only, request.seeds).cells.items():
                for result in by_seed.values():
                    if result.intended_data not in of:
                        given = scale.with_data(one.cells(scale)[cell], request.data)
                        of[result.intended_data] = resolve(given).dataset.fingerprint()
                    if result.data not in (None, of[result.intended_data]):
                        other.add((result.key, result.seed))
    return len(other)


def list_table(scale: Scale, results: Path) -> Table:
    """List every name, its place in the paper, and how much of it is stored."""
    stored = read_results(results, scale.name)
    title = f"manyheads reproduce NAME --scale {scale.name}; results are in {results}{hint_elsewhere(results)}"
    made = Table("name", "in the paper", "what", "cells", "stored runs", title=title)
    for name, one in REPRODUCTIONS.items():
        if scale.name not in one.scales:
            made.add_row(name, one.where, one.title, "-", "")
            continue
        found = one.results(scale, stored)
        seeds = one.seeds_complete(scale, found)
        runs = [result for by_seed in found.select((), seeds).cells.values() for result in by_seed.values()]
        other = sum(not same_numbers(result.code) for result in runs)
        have = f"{len(runs)} of {seeds * len(found.cells)}" + (f", {other} by other code" if other else "")
        made.add_row(name, one.where, one.title, str(len(found.cells)), have)
    return made


def cells_table(one: Reproduction, scale: Scale, results: Path) -> Table:
    """List the cells of a table, and the keys in which they differ from the experiment of the scale."""
    made = Table("cell", "keys that differ from MHD at this scale", "stored seeds", title=one.name, caption=scale.about)
    cells = one.cells(scale)
    for cell, by_seed in one.results(scale, read_results(results, scale.name)).cells.items():
        made.add_row(cell, keys_text(scale.differing_keys(cells[cell])), ", ".join(map(str, by_seed)))
    return made


def result_text(result: CellResult) -> str:
    """Describe one result in one line."""
    shared = " ".join(f"{100 * value:.1f}" for value in result.shared_accuracy)
    warned = "; a head has collapsed" if result.collapsed else ""
    return (
        f"{result.cell}, seed {result.seed}: private {100 * result.private_accuracy[0]:.1f} %, "
        f"shared by head {shared} % ({result.seconds:.0f} s){warned}"
    )


def show_stored(screen: Screen, names: Sequence[Reproduction], request: ReproduceRequest) -> None:
    """Show the table, the claims and the picture of each reproduction."""
    stored = read_results(request.results, request.scale.name)
    if other := count_of_other_data(names, request):
        screen.say(
            f"note: {other} of these stored results were made from data other than those in {request.data or Path()}; "
            "--results FOLDER runs everything with yours"
        )
    for one in names:
        found = one.results(request.scale, stored).select(request.only, request.seeds)
        if any(found.cells.values()):
            _show_one(screen, one, found, request)
        elif found.cells:
            place = request.results / request.scale.name
            screen.say(f"{one.name}: none of it is stored in {place}{hint_elsewhere(request.results)}")


def _show_one(screen: Screen, one: Reproduction, found: TableResults, request: ReproduceRequest) -> None:
    printed = "; in brackets the paper's number, at its own scale" if one.printed else ""
    screen.show_wide(*table_rows(one, found), f"{one.name}, {request.scale.name}: {one.title}{printed}")
    screen.say(provenance_text(found))
    if (beside := derived_rows(one, found)) and not request.only:
        numbers = Table("over several cells", "here", "the paper")
        for line in beside:
            numbers.add_row(*line)
        screen.show(numbers)
    if one.claims and not request.only:  # a claim is about a table
        judged = Table("claim", "here", "its parts")
        for text, answer, parts in claim_rows(one, request.scale, found):
            judged.add_row(text, answer, "\n".join(parts))
        screen.show(judged)
    for text in warning_texts(found):
        screen.say(text)
    if has_picture(found):
        screen.say(f"Picture: {draw_picture(one, request.scale, found, request.out)}")


def draw_picture(one: Reproduction, scale: Scale, found: TableResults, folder: Path) -> Path:
    """Draw the picture of a table into a folder, and return its path."""
    place = folder / picture_name(one, scale)
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(FIGURES[one.figure](one, found), place)
    return place


def write_page(page: Path, results: Path) -> int:
    """Write the page of all stored results, with its pictures beside it; return the number of pictures."""
    check_page(page)
    stored = {name: read_results(results, name) for name in SCALES}
    drawn = 0
    for one, scale in itertools.product(REPRODUCTIONS.values(), SCALES.values()):
        if has_picture(found := one.results(scale, stored[scale.name])):
            draw_picture(one, scale, found, page.parent / "images")
            drawn += 1
    write_whole(page, results_page(list(REPRODUCTIONS.values()), stored).encode())
    return drawn

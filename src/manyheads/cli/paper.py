"""The paper's tables and figures."""

from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.options import PrecisionName, Quiet, TrainingDevice
from manyheads.console import Screen
from manyheads.errors import ConfigurationError
from manyheads.studies.paper import command, show
from manyheads.studies.paper.request import Request, chosen, results_folder, scale_named
from manyheads.studies.paper.verify import verify as verify_stored


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Of --list, or Table 5, Fig. 4, Section 4.3; or all."),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what there is; with NAME, its cells.")] = False,
    toml: Annotated[bool, typer.Option("--toml", help="Print the cell of --only as an experiment to run.")] = False,
    scale: Annotated[str, typer.Option(help="digits, cifar100 or imagenet.")] = "digits",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many, from 0 on.", show_default="1; of some tables at cifar100 3")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="CELL", help="This cell; may be given often.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with cifar100.npz and cifar10.npz; packed ImageNet.", show_default=".")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="As of run.", show_default="cuda where that is worth it, or plain")
    ] = None,
    device: TrainingDevice = None,
    precision: PrecisionName = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Cells at a time.", show_default="what fills the machine")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Where results are stored.", show_default="experiments/mhd/results if there")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs and pictures go.")] = Path("runs/reproduce"),
    again: Annotated[bool, typer.Option("--again", help="Run also what is stored; stopped, it goes on.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Take results as they are that other code made.")] = False,
    show_stored: Annotated[bool, typer.Option("--show", help="Show what is stored; run nothing.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Run what is stored once more and compare.")] = False,
    steps: Annotated[
        int | None, typer.Option("--try", min=2, metavar="STEPS", help="A few steps of each cell; nothing is stored.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write all that is stored into this page.")] = None,
    quiet: Quiet = False,
) -> None:
    """The paper's tables and figures beside ours: runs the cells that are not stored, then judges its claims."""
    screen, size, stored = Screen(quiet), scale_named(scale), results_folder(results)
    asked = Request(
        names=names or [],
        scale=size,
        results=stored,
        seeds=seeds,
        only=only or [],
        data=data,
        engine=engine,
        device=device,
        precision=precision,
        at_once=at_once,
        out=out,
        again=again,
        keep=keep,
        steps=steps,
    )
    if steps is not None and (show_list or show_stored):
        raise ConfigurationError("--try takes steps, --list and --show run nothing; leave one of them out")
    if verify and (show_list or show_stored or again or keep or steps is not None):
        raise ConfigurationError("--verify runs what is stored; leave --list, --show, --again, --keep and --try out")
    if show_list and not names:
        screen.show(show.list_table(size, stored))
    elif show_list:
        for one in chosen(asked):
            screen.show(show.cells_table(one, size, stored))
    elif toml:
        print(command.one_cell(asked), end="")
    elif show_stored:
        show.show(screen, chosen(asked), asked)
    elif verify:
        verify_stored(screen, asked)
    elif names or page is None:
        command.reproduce(screen, asked)
    if page is not None:
        screen.say(f"Written: {page}, with {show.write_page(page, stored)} pictures")

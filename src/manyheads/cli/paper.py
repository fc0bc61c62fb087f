"""The command that reproduces the paper's tables and figures."""

from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.options import Quiet, check_seeds, engine_options, folder_given
from manyheads.console import Screen
from manyheads.engine.options import EngineOptions
from manyheads.errors import ConfigurationError


@engine_options("engine", "device", "precision", engine="cuda where it pays off, otherwise plain")
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help='Names from --list, or "Table 5", "Fig. 4", "Section 4.3"; or all.'),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List tables and figures; with NAME, list its cells.")
    ] = False,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print the cell that --only names, as an experiment file.")
    ] = False,
    scale: Annotated[str, typer.Option(help="Size of the experiments: digits, cifar100 or imagenet.")] = "digits",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of seeds, starting with seed 0.", show_default="1; 3 for some tables at cifar100"
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CELL", help="Take only this cell, one setting of a table; may be repeated."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with cifar100.npz and cifar10.npz, or the folder of a packed ImageNet.", show_default="."
        ),
    ] = None,
    *,
    options: EngineOptions,
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of cells that run at the same time.", show_default="as many as fill the machine"
        ),
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder of stored results.", show_default="experiments/mhd/results if it exists"
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder for runs and pictures.", show_default="runs/reproduce")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run stored cells again, too; after a stop, the same command continues.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Accept stored results of another version of the code.")] = False,
    show_stored: Annotated[bool, typer.Option("--show", help="Show stored results; run nothing.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Run stored cells again and compare every number.")] = False,
    steps: Annotated[
        int | None,
        typer.Option("--try", min=2, metavar="STEPS", help="Take only this many steps of each cell; store nothing."),
    ] = None,
    page: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write all stored results into this Markdown file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper's tables and figures: run the cells that are not stored, then check its claims."""
    check_seeds(seeds)
    from manyheads.runs.read import check_no_run
    from manyheads.studies.paper.arguments import (
        RUNS,
        ReproduceRequest,
        check_at_once,
        check_early,
        check_page,
        chosen_reproductions,
        only_cell,
        results_folder,
        scale_named,
    )

    check_at_once(at_once)
    if page is not None:
        check_page(Path(page))
    screen, size, stored = Screen(quiet), scale_named(scale), results_folder(folder_given(results, "--results"))
    place = folder_given(out) or RUNS
    check_no_run(place)
    asked = ReproduceRequest(
        names=names or [],
        scale=size,
        results=stored,
        seeds=seeds,
        only=only or [],
        data=data,
        given=options,
        at_once=at_once,
        out=place,
        again=again,
        keep=keep,
        steps=steps,
    )
    if steps is not None and (show_list or show_stored):
        raise ConfigurationError("--try takes steps, --list and --show run nothing; leave one of them out")
    if verify and (show_list or show_stored or again or keep or steps is not None):
        raise ConfigurationError("--verify runs what is stored; leave out --list, --show, --again, --keep and --try")
    # A mistake in a name is reported before anything heavy is imported.
    if toml:
        only_cell(asked)
    elif names or not (show_list or page is not None):
        chosen_reproductions(asked)
    if not (show_list or toml or show_stored or verify) and names:
        check_early(asked)
    from manyheads.studies.paper import command, show
    from manyheads.studies.paper.verify import verify as verify_stored

    if show_list and not names:
        screen.show(show.list_table(size, stored))
    elif show_list:
        for one in chosen_reproductions(asked):
            screen.show(show.cells_table(one, size, stored))
    elif toml:
        print(command.cell_to_change(asked), end="")
    elif show_stored:
        show.show_stored(screen, chosen_reproductions(asked), asked)
    elif verify:
        verify_stored(screen, asked)
    elif names or page is None:
        command.reproduce(screen, asked)
    if page is not None:
        screen.say(f"Written: {page}, with {show.write_page(Path(page), stored)} pictures")

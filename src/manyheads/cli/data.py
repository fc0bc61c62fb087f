"""The commands about data: show who owns what, and pack images."""

import os
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.early import check_data
from manyheads.cli.options import ExperimentFile, Overrides, Quiet, folder_given, picture_given
from manyheads.config.data import DataConfig
from manyheads.config.experiment import Experiment
from manyheads.console import Screen
from manyheads.errors import ConfigurationError, DataError, Stopped
from manyheads.report.sentences import packed_text, unreadable_text
from manyheads.report.split_table import primary_clients, split_table


def split(
    experiment: ExperimentFile,
    settings: Overrides = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="PNG file for the picture.", show_default="NAME-split.png")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show which client owns which samples, without training."""
    screen, picture = Screen(quiet), picture_given(plot) or Path(f"{experiment.stem}-split.png")
    loaded = Experiment.load(experiment, settings or ())
    check_data(loaded.data)
    from manyheads.report.figures import save_figure
    from manyheads.report.split_figure import split_figure
    from manyheads.setup.notes import notes_of
    from manyheads.setup.resolve import resolve

    resolved = resolve(loaded, to_train=False)
    parts, dataset, counts = resolved.split, resolved.dataset, resolved.label_counts().tolist()
    names = [resolved.client_name(client) for client in range(len(counts))]
    screen.show(split_table(counts, parts.primary_labels, dataset.class_names, names))
    if any(parts.primary_labels):
        owners = primary_clients(parts.primary_labels, dataset.classes)
        screen.say("Labels by number of primary clients: " + ", ".join(f"{labels} with {n}" for n, labels in owners))
    screen.say("Samples: " + ", ".join(f"{name} {count}" for name, count in resolved.sample_counts().items()))
    for note in notes_of(resolved):
        screen.say(f"note: {note}")
    save_figure(split_figure(counts, parts.primary_labels, dataset.class_names, names), picture)
    screen.say(f"Picture: {picture}")


def pack_images(
    what: Annotated[Path, typer.Argument(metavar="WHAT", help="A folder, an .npz file, or an experiment file.")],
    out: Annotated[str | None, typer.Argument(metavar="OUT", help="Folder for the packed images.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Height and width in pixels.", show_default="as they are")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="How to read WHAT: folder, clients, huggingface, ... (data.source).")
    ] = None,
    settings: Overrides = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes.", show_default="one per core")
    ] = None,
    check_only: Annotated[
        bool, typer.Option("--verify", help="Pack nothing; compare each image in the packed folder WHAT with its hash.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Pack images into a folder that training reads from disk instead of memory: `source = "packed"`."""
    from manyheads.data.pack import pack, verify
    from manyheads.data.sources.packed_folder import read_card

    screen = Screen(quiet)
    if check_only:
        with screen.images("verifying", "damaged") as progress:
            damaged = verify(what, progress)
        if damaged:
            raise DataError(f"{what}: {len(damaged)} images are damaged, the first {damaged[0]}; pack it again")
        screen.say(f"{what}: all {read_card(what).images:,} images are unchanged since they were packed.")
        return
    place = folder_given(out, "OUT")
    if place is None:
        raise ConfigurationError("OUT: missing; manyheads pack WHAT OUT --size 64")
    config = _data_of(what, source, [*(settings or ()), *([f"data.size={size}"] if size else ())])
    try:
        with screen.images("packing", "unreadable") as progress:
            card = pack(config, place, workers=workers or os.cpu_count() or 1, progress=progress)
    except KeyboardInterrupt:
        raise Stopped("stopped; the same command continues where it stopped") from None
    for line in (*card["notes"], *unreadable_text(card, place)):
        screen.say(f"note: {line}")
    screen.say(packed_text(card, place))


def _data_of(what: Path, source: str | None, settings: list[str]) -> DataConfig:
    """Return `[data]` of an experiment, or one for a path on the command line."""
    if what.suffix == ".toml":
        if source is not None:
            settings = [*settings, f"data.source={source}"]
        return Experiment.load(what, settings).data
    kind = source or ("npz" if what.suffix == ".npz" else "folder")
    loaded = Experiment.from_toml(f'clients = 1\n[data]\nsource = "{kind}"\n', "pack", settings)
    return loaded.with_values(data={"path": str(what)}).data

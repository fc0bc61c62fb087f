"""The command line. Every mistake ends in one line on standard error and exit status 2."""

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, TypeVar

import typer

from manyheads.checks import check
from manyheads.console import Screen
from manyheads.data.pack import pack, verify
from manyheads.data.sources.packs import read_card
from manyheads.demo import DEMO_OUT, demo_runs, make_room, moral
from manyheads.engine import ENGINES
from manyheads.engine.parallel import usable_cores
from manyheads.errors import ConfigurationError, DataError, ManyheadsError, RunError, Stopped
from manyheads.experiment import DataConfig, Experiment
from manyheads.export import client_number
from manyheads.export import export as export_model
from manyheads.files import write_whole
from manyheads.frontier import cells
from manyheads.judge import judge
from manyheads.report import plots, tables
from manyheads.reproduce import command as reproducing
from manyheads.reproduce.request import Request, chosen, results_folder, scale_named
from manyheads.reproduce.results import slug
from manyheads.reproduce.verify import verify as verify_stored
from manyheads.runs import read_experiment, read_summary
from manyheads.series import (
    BETWEEN_RUNS,
    check_same_experiment,
    plot_if_missing,
    run_folders,
    run_or_go_on,
    short_names,
)
from manyheads.training import Interrupted, Result, resume, train
from manyheads.version import __version__

MISTAKE, STOPPED = 2, 130
Command = TypeVar("Command", bound=Callable[..., None])

app = typer.Typer(
    help="Many heads are better than one: clients with private data teach each other, without a server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ExperimentFile = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="The experiment to run.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Replace a key, e.g. training.steps=200."),
]
EngineName = Annotated[str, typer.Option(help=f"How windows are run: {', '.join(ENGINES)}.")]
DeviceName = Annotated[str, typer.Option(help="cpu or cuda.")]
TrainingDevice = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda.", show_default="cuda with --engine cuda, otherwise cpu")
]
PrecisionName = Annotated[
    str | None, typer.Option("--precision", help="Of a GPU: bf16, tf32 or float32.", show_default="bf16")
]
Profile = Annotated[bool, typer.Option("--profile", help="Show where the time goes; write a torch trace of two steps.")]
Workers = Annotated[
    int | None, typer.Option(help="Of --engine parallel: how many processes.", show_default="one per core")
]
Address = Annotated[
    str | None,
    typer.Option(help="Of --engine ray: HOST:PORT of a cluster.", show_default="RAY_ADDRESS, or this machine"),
]
GpusPerClient = Annotated[
    float | None, typer.Option(help="Of --engine ray --device cuda: such as 0.25.", show_default="evenly")
]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run, from the experiment's on.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Plain lines instead of a progress bar.")]


def command(function: Command, name: str | None = None) -> Command:
    """A command whose mistakes are one line, and whose interruption says how to go on."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except (Interrupted, Stopped) as stopped:
            print(f"\n{stopped}", file=sys.stderr)
            raise typer.Exit(STOPPED) from None
        except ManyheadsError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(MISTAKE) from None
        except OSError as error:
            print(f"error: {error.filename or function.__name__}: {error.strerror or error}", file=sys.stderr)
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt:
            print("\nleft at once; a run folder goes on from its last save with: manyheads resume RUN", file=sys.stderr)
            raise typer.Exit(STOPPED) from None

    app.command(name)(guarded)
    return function


def version(show: bool) -> None:
    if show:
        print(f"manyheads {__version__}")
        raise typer.Exit()


@app.callback()
def common(
    show_version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True)] = False,
) -> None:
    pass


@command
def demo(
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="Where its runs go; what an earlier demo left there is replaced.")
    ] = DEMO_OUT,
    quiet: Quiet = False,
) -> None:
    """Eight clients with three digits each: alone, teaching each other, and with all their data in one model."""
    screen = Screen(quiet)
    runs = demo_runs(seed)
    make_room(out, runs)
    summaries = {}
    for name, experiment in runs.items():
        with screen.watch(name) as watcher:
            # The same bits as with one process, in less time.
            engine = "parallel" if min(usable_cores(), experiment.clients) > 1 else "plain"
            result = train(experiment, out / name, engine=engine, observer=watcher)
        if result.stop_requested:
            raise Stopped(BETWEEN_RUNS)
        summaries[name] = result.summary
    for name in runs:
        plots.plot_run(out / name)
    plots.save(plots.compare_figure({name: [out / name] for name in runs}), out / "demo.png")
    screen.show(tables.compare_table({name: [summary] for name, summary in summaries.items()}))
    screen.say(moral(summaries))
    screen.say(f"Picture: {out / 'demo.png'}. Runs: {', '.join(str(out / name) for name in runs)}.")


@command
def run(
    experiment: ExperimentFile,
    settings: Settings = None,
    seeds: Seeds = 1,
    out: Annotated[Path | None, typer.Option(help="The run folder.", show_default="runs/NAME")] = None,
    engine: EngineName = "plain",
    device: TrainingDevice = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_client: GpusPerClient = None,
    precision: PrecisionName = None,
    profile: Profile = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment."""
    screen, how = Screen(quiet), _how(engine, device, workers, address, gpus_per_client, precision, profile)
    loaded = Experiment.load(experiment, settings or ())
    folder = out or Path("runs") / experiment.stem
    if seeds == 1:
        with screen.watch(folder.name) as watcher:
            result = train(loaded, folder, **how, observer=watcher)
        _show_result(screen, result, folder, profile=profile)
        return
    if (folder / "experiment.toml").exists():
        raise RunError(f"{folder}: is a run itself; give another folder with --out")
    first = check(loaded)
    check_same_experiment(first.experiment, folder)
    numbers = range(loaded.seed, loaded.seed + seeds)
    every = {seed: check(loaded.with_values(seed=seed), loaded=first).experiment for seed in numbers}
    try:
        summaries = [run_or_go_on(screen, seeded, folder / f"seed-{seed}", how) for seed, seeded in every.items()]
    except Interrupted:
        raise Stopped("stopped and saved; the same command goes on with this seed and the next ones") from None
    screen.show(tables.seeds_table(summaries))
    screen.say(f"Runs: {folder}/seed-*")


@functools.partial(command, name="resume")
def resume_run(
    folder: RunPath,
    engine: Annotated[str | None, typer.Option(help="How windows are run.", show_default="as it was started")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="as it was started")] = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_client: GpusPerClient = None,
    precision: Annotated[
        str | None, typer.Option(help="Of a GPU: bf16, tf32 or float32.", show_default="as it was started")
    ] = None,
    profile: Profile = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped or killed; it ends with the same bits as one that never was."""
    screen = Screen(quiet)
    read_experiment(folder)
    if (folder / "summary.json").exists():
        screen.say(f"{folder}: this run has ended already.")
        plot_if_missing(folder)
        _show_tables(screen, read_summary(folder))
        return
    with screen.watch(folder.name) as watcher:
        how = _how(engine, device, workers, address, gpus_per_client, precision, profile)
        result = resume(folder, **how, observer=watcher)
    _show_result(screen, result, folder, profile=profile)


@command
def split(
    experiment: ExperimentFile,
    settings: Settings = None,
    plot: Annotated[Path | None, typer.Option(help="Where the picture goes.", show_default="NAME-split.png")] = None,
    quiet: Quiet = False,
) -> None:
    """Show who owns which samples, before anything is trained."""
    screen = Screen(quiet)
    checked = check(Experiment.load(experiment, settings or ()), to_train=False)
    parts, dataset, counts = checked.split, checked.dataset, checked.label_counts().tolist()
    names = [checked.client_name(client) for client in range(len(counts))]
    screen.show(tables.split_table(counts, parts.primary_labels, dataset.class_names, names))
    if any(parts.primary_labels):
        owners = tables.primary_clients(parts.primary_labels, dataset.classes)
        screen.say("Labels by number of primary clients: " + ", ".join(f"{labels} with {n}" for n, labels in owners))
    screen.say("Samples: " + ", ".join(f"{name} {count}" for name, count in checked.sample_counts().items()))
    for note in checked.notes:
        screen.say(f"note: {note}")
    picture = plot or Path(f"{experiment.stem}-split.png")
    plots.save(plots.split_figure(counts, parts.primary_labels, dataset.class_names, names), picture)
    screen.say(f"Picture: {picture}")


@functools.partial(command, name="pack")
def pack_images(
    what: Annotated[Path, typer.Argument(metavar="WHAT", help="An experiment (its data), a folder, or an .npz file.")],
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="The new folder.")] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Height and width.", show_default="as they are")] = None,
    source: Annotated[str | None, typer.Option(help="Of a folder: folder, clients, huggingface, ...")] = None,
    settings: Settings = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    check_only: Annotated[bool, typer.Option("--verify", help="WHAT is packed: compare every image's hash.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make a folder that training reads without loading it into memory: `source = "packed"`."""
    screen = Screen(quiet)
    if check_only:
        with screen.images("verifying", "damaged") as progress:
            damaged = verify(what, progress)
        if damaged:
            raise DataError(f"{what}: {len(damaged)} images are damaged, the first {damaged[0]}; pack it again")
        count = sum(part["images"][0] for part in read_card(what)["parts"].values())
        screen.say(f"{what}: all {count:,} images are what they were when they were packed.")
        return
    if out is None:
        raise ConfigurationError("OUT: missing; manyheads pack WHAT OUT --size 64")
    config = _data_of(what, source, [*(settings or ()), *([f"data.size={size}"] if size else ())])
    try:
        with screen.images("packing", "unreadable") as progress:
            card = pack(config, out, workers=workers or os.cpu_count() or 1, progress=progress)
    except KeyboardInterrupt:
        raise Stopped("stopped; the same command goes on where it stopped") from None
    for line in (*card["notes"], *tables.unreadable_text(card, out)):
        screen.say(f"note: {line}")
    screen.say(tables.packed_text(card, out))


def _data_of(what: Path, source: str | None, settings: list[str]) -> DataConfig:
    """`[data]` of an experiment, or of a path on the command line."""
    if what.suffix == ".toml":
        if source is not None:
            settings = [*settings, f"data.source={source}"]
        return Experiment.load(what, settings).data
    kind = source or ("npz" if what.suffix == ".npz" else "folder")
    loaded = Experiment.from_toml(f'clients = 1\n[data]\nsource = "{kind}"\n', "pack", settings)
    return loaded.with_values(data={"path": str(what)}).data


@command
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished run folders.")],
    plot: Annotated[Path | None, typer.Option(help="Also draw them into this PNG file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Show runs side by side."""
    screen = Screen(quiet)
    named = dict(zip(short_names(runs), runs, strict=True))
    for folder in runs:
        first = run_folders(folder)[0]
        if first != folder:
            check_same_experiment(read_experiment(first), folder)
    summaries = {name: [read_summary(run) for run in run_folders(folder)] for name, folder in named.items()}
    screen.show(tables.compare_table(summaries))
    experiments = {name: read_experiment(run_folders(folder)[0]) for name, folder in named.items()}
    for text in tables.differences_text({name: experiment.keys() for name, experiment in experiments.items()}):
        screen.say(text)
    if plot is not None:
        plots.save(plots.compare_figure({name: run_folders(folder) for name, folder in named.items()}), plot)
        screen.say(f"Picture: {plot}")


@functools.partial(command, name="evaluate")
def evaluate_run(
    folder: RunPath,
    with_probe: Annotated[
        bool, typer.Option("--probe", help="Also fit a fresh linear head on each frozen embedding: what it allows.")
    ] = False,
    device: DeviceName = "cpu",
    quiet: Quiet = False,
) -> None:
    """Judge a finished run again: every head on everybody's data, hop by hop; writes RUN/evaluation.json."""
    screen = Screen(quiet)
    judged = judge(folder, device=device, with_probe=with_probe)
    write_whole(folder / "evaluation.json", json.dumps(judged.measured, indent=1).encode())
    _show_tables(screen, judged.summary | {"taught": None})  # that was counted while it trained
    screen.say(f"Written: {folder / 'evaluation.json'}")


@command
def frontier(
    experiment: ExperimentFile,
    settings: Settings = None,
    seeds: Seeds = 1,
    out: Annotated[Path | None, typer.Option(help="Where its runs go.", show_default="runs/NAME-frontier")] = None,
    engine: EngineName = "plain",
    device: TrainingDevice = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_client: GpusPerClient = None,
    precision: PrecisionName = None,
    quiet: Quiet = False,
) -> None:
    """Bytes against accuracy: smaller and smaller exchanges, gossip averaging, and FedAvg (on the complete graph)."""
    screen, how = Screen(quiet), _how(engine, device, workers, address, gpus_per_client, precision)
    loaded = check(Experiment.load(experiment, settings or ()))
    folder = out or Path("runs") / f"{experiment.stem}-frontier"
    made = cells(loaded.experiment, loaded.dataset.classes)
    places = {name: folder / slug(name) for name in made}
    for name, cell in made.items():  # all of them before the first is run
        check_same_experiment(check(cell.experiment, loaded=loaded).experiment, places[name])
    summaries: dict[str, list[dict[str, Any]]] = {name: [] for name in made}
    try:
        for name, cell in made.items():
            for seed in range(loaded.experiment.seed, loaded.experiment.seed + seeds):
                place, seeded = places[name] / f"seed-{seed}", cell.experiment.with_values(seed=seed)
                summaries[name].append(run_or_go_on(screen, seeded, place, how, name))
    except Interrupted:
        raise Stopped("stopped and saved; the same command goes on where it stopped") from None
    screen.show(tables.compare_table(summaries))
    points = [
        (name, cell.kind, mean(map(mean, (s["bytes_received"] for s in summaries[name]))), _last_head(summaries[name]))
        for name, cell in made.items()
    ]
    if seeds == 1:
        screen.say("One seed: differences of some points may be chance; --seeds 3 shows the spread.")
    plots.save(plots.frontier_figure(points), folder / "frontier.png")
    screen.say(f"Picture: {folder / 'frontier.png'}. Runs: {folder}/*/seed-*")


def _last_head(summaries: Sequence[dict[str, Any]]) -> list[float]:
    return [summary["shared_accuracy"][-1] for summary in summaries]


@command
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
        screen.show(reproducing.list_table(size, stored))
    elif show_list:
        for one in chosen(asked):
            screen.show(reproducing.cells_table(one, size, stored))
    elif toml:
        print(reproducing.one_cell(asked), end="")
    elif show_stored:
        reproducing.show(screen, chosen(asked), asked)
    elif verify:
        verify_stored(screen, asked)
    elif names or page is None:
        reproducing.reproduce(screen, asked)
    if page is not None:
        screen.say(f"Written: {page}, with {reproducing.write_page(page, stored)} pictures")


@command
def export(
    folder: RunPath,
    client: Annotated[str, typer.Option(help="Whose model: a number, or a name.")] = "0",
    out: Annotated[Path | None, typer.Option(help="The new folder.", show_default="RUN/exports/NAME")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a client's model as files with a model card; `manyheads.load_model` reads them."""
    number = client_number(folder, int(client) if client.lstrip("-").isdigit() else client)
    place = out or folder / "exports" / read_summary(folder)["clients"][number]["name"]
    card = export_model(folder, number, place)
    Screen(quiet).say(f"{place}: {card['name']}, {card['heads']} heads, {len(card['classes'])} classes; see README.md")


def _show_result(screen: Screen, result: Result, folder: Path, *, profile: bool = False) -> None:
    pictures = plots.plot_run(folder)
    summary = result.summary
    _show_tables(screen, summary)
    for text in tables.collapse_text(summary["collapsed"], summary["classes"]):
        screen.say(f"warning: {text}")
    if len(summary["shared_accuracy"]) > 1:
        screen.say(tables.deploy_text(summary))
    if doubt := tables.doubt_text(summary):
        screen.say(doubt)
    screen.say(
        f"{summary['steps']} steps in {summary['seconds']:.1f} s "
        f"({summary['client_steps_per_second']:.0f} client-steps/s); received by all clients together: "
        f"{tables.bytes_text(summary['bytes_received_total'])}. Run: {folder}; pictures: {pictures[0].parent}"
    )
    if profile:
        screen.say(tables.time_text(summary))
        screen.say(f"A trace of two steps, for chrome://tracing or ui.perfetto.dev: {folder / 'trace.json'}")


def _show_tables(screen: Screen, summary: dict[str, Any]) -> None:
    """Accuracies; where clients learn from each other also hop by hop, and who taught whom."""
    screen.show(tables.run_table(summary))
    for text in tables.after_text(summary):
        screen.say(text)
    if sum(summary["bytes_received"]) > 0:
        screen.show(tables.hop_table(summary))
    if summary.get("taught"):
        screen.show(tables.taught_table(summary))
        if summary["taught"]["right"] is not None:
            screen.show(tables.taught_by_class_table(summary))


def _how(*given: Any) -> dict[str, Any]:
    """The keywords of `train` and `resume` that say how windows are run."""
    names = ("engine", "device", "workers", "address", "gpus_per_client", "precision", "profile")
    return dict(zip(names, given, strict=False))


def main() -> None:
    sys.path.append(str(Path.cwd()))  # an algorithm of one's own may lie in the working folder
    app()

"""The commands about runs: start and continue them, compare and export their results.

Heavy modules are imported once the arguments have been checked, so that a mistake is answered at once.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated

import typer

from manyheads.cli.early import check_early
from manyheads.cli.options import (
    AS_STARTED,
    DeviceName,
    ExperimentFile,
    Overrides,
    Quiet,
    RunPath,
    Seeds,
    TrustCode,
    check_seeds,
    client_given,
    engine_options,
    folder_given,
    picture_given,
)
from manyheads.config.device import check_device, check_gpu
from manyheads.config.experiment import Experiment
from manyheads.console import Screen
from manyheads.engine.cores import usable_cores
from manyheads.engine.options import EngineOptions
from manyheads.errors import ConfigurationError, Interrupted, Stopped
from manyheads.export.place import default_folder
from manyheads.files import write_whole
from manyheads.report.advice import read_settings
from manyheads.report.beside import gain_table, ways_table, worth_text
from manyheads.report.mark import check_replaceable
from manyheads.report.sentences import after_text, collapse_text, deploy_text, differences_text, no_gain_text, time_text
from manyheads.report.tables import compare_table, hop_table, run_table, seeds_table
from manyheads.report.taught_tables import taught_by_class_table, taught_table
from manyheads.report.text import bytes_text
from manyheads.runs.manifest import read_manifest
from manyheads.runs.read import check_new_folder, check_no_run, client_number, read_experiment, read_start, read_summary
from manyheads.runs.summary import Summary
from manyheads.studies.beside import ALONE, plan_beside, ways_given
from manyheads.studies.demo import DEMO_OUT, demo_runs, demo_text, remove_earlier_demo
from manyheads.studies.paper.keys import slug
from manyheads.studies.series import (
    check_same_experiment,
    plot_if_missing,
    run_folders,
    run_or_continue,
    short_names,
)

if TYPE_CHECKING:
    from manyheads.training.result import Result


ONE_SEED = "One seed: differences of a few points may be chance; --seeds 3 shows the spread."
AGAIN = "stopped; the same command runs the demo from its beginning"


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Decides every random choice of all three runs.")] = 0,
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for its runs; those of an earlier demo are replaced.")
    ] = str(DEMO_OUT),
    quiet: Quiet = False,
) -> None:
    """Train eight clients with three digits each: alone, teaching each other, and as one model with all their data."""
    screen, folder = Screen(quiet), folder_given(out) or DEMO_OUT
    check_no_run(folder)
    check_replaceable(folder / "demo.png")
    runs = demo_runs(seed)
    from manyheads.report.figures import compare_figure, save_figure
    from manyheads.report.plots import plot_run
    from manyheads.training.start import train

    remove_earlier_demo(folder, runs)
    summaries = {}
    for name, experiment in runs.items():
        # The same bits as with one process, in less time.
        engine = "parallel" if min(usable_cores(), experiment.clients) > 1 else "plain"
        try:
            with screen.watch(name) as watcher:
                result = train(experiment, folder / name, EngineOptions(engine), watcher)
        except Interrupted:
            raise Stopped(AGAIN) from None
        if result.stop_requested:
            raise Stopped(AGAIN)
        summaries[name] = result.summary
    for name in runs:
        plot_run(folder / name)
    save_figure(compare_figure({name: [folder / name] for name in runs}), folder / "demo.png")
    screen.show(compare_table({name: [summary] for name, summary in summaries.items()}))
    screen.say(demo_text(summaries))
    screen.say(f"Picture: {folder / 'demo.png'}. Runs: {', '.join(str(folder / name) for name in runs)}.")


@engine_options()
def run(
    experiment: ExperimentFile,
    settings: Overrides = None,
    seeds: Seeds = 1,
    beside: Annotated[
        str | None,
        typer.Option(metavar="WAY,...", help="Train them in other ways, too, and say what is gained: separate, ..."),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="FOLDER", help="The run folder.", show_default="runs/NAME")] = None,
    *,
    options: EngineOptions,
    quiet: Quiet = False,
) -> None:
    """Train the clients of an experiment, and show the result."""
    screen, loaded = Screen(quiet), Experiment.load(experiment, settings or ())
    check_seeds(seeds, loaded.seed)
    folder = folder_given(out) or Path("runs") / experiment.stem
    if beside is not None:
        _run_beside(screen, loaded, ways_given(beside, loaded.algorithm.name), seeds, folder, options)
        return
    if seeds > 1:
        _run_seeds(screen, loaded, seeds, folder, options)
        return
    check_new_folder(folder)
    check_early(loaded, options)
    from manyheads.training.start import train

    with screen.watch(folder.name) as watcher:
        result = train(loaded, folder, options, watcher)
    _show_result(screen, result, folder, profile=options.profile)


def _run_seeds(screen: Screen, loaded: Experiment, seeds: int, folder: Path, options: EngineOptions) -> None:
    check_no_run(folder)
    check_early(loaded, options)
    from manyheads.setup.resolve import resolve

    first = resolve(loaded)
    check_same_experiment(first.experiment, folder)
    numbers = range(loaded.seed, loaded.seed + seeds)
    every = {seed: resolve(loaded.with_values(seed=seed), loaded=first).experiment for seed in numbers}
    try:
        summaries = [
            run_or_continue(screen, seeded, folder / f"seed-{seed}", options) for seed, seeded in every.items()
        ]
    except Interrupted:
        raise Stopped("stopped and saved; the same command continues with this seed and the next ones") from None
    screen.show(seeds_table(summaries))
    if warning := no_gain_text(summaries, read_settings(folder / f"seed-{loaded.seed}")):
        screen.say(warning)
    screen.say(f"Runs: {folder}/seed-*")


def _run_beside(
    screen: Screen, loaded: Experiment, ways: Sequence[str], seeds: int, folder: Path, options: EngineOptions
) -> None:
    """Train the same clients in several ways, and say what joining gains."""
    check_no_run(folder)
    check_early(loaded, options)
    plan = plan_beside(loaded, ways, seeds, folder)
    summaries: dict[str, list[Summary]] = {run.way: [] for run in plan.runs}
    try:
        for run, title in zip(plan.runs, plan.titles(seeds=seeds > 1), strict=True):
            fitting = options.for_nodes(len(run.experiment.groups) or run.experiment.clients)
            summaries[run.way].append(run_or_continue(screen, run.experiment, run.folder, fitting, title=title))
    except Interrupted:
        raise Stopped("stopped and saved; the same command continues where it stopped") from None
    alone, joined = summaries.get("separate"), next((way for way in summaries if way not in ALONE), None)
    if alone is not None and joined is not None:
        screen.show(gain_table(alone, summaries[joined]))
    if len(summaries) > 2 or plan.missing or alone is None or joined is None:
        screen.show(ways_table(summaries, plan.missing))
    if alone is not None and joined is not None:
        settings = read_settings(next(run.folder for run in plan.runs if run.way == joined))
        screen.say(worth_text(alone, summaries[joined], settings))
    else:
        screen.say("What joining gains is the difference between separate and another way; name both.")
    if seeds == 1:
        screen.say(ONE_SEED)
    screen.say(f"Runs: {', '.join(dict.fromkeys(str(folder / slug(way)) for way in summaries))}")


@engine_options(engine=AS_STARTED, device=AS_STARTED, precision=AS_STARTED)
def resume_run(folder: RunPath, *, options: EngineOptions, trust_code: TrustCode = False, quiet: Quiet = False) -> None:
    """Continue a run that was stopped or killed; it ends with the same bits as an uninterrupted one."""
    screen = Screen(quiet)
    read_experiment(folder)
    if (folder / "summary.json").exists():
        screen.say(f"{folder}: this run has already ended.")
        plot_if_missing(folder)
        _show_tables(screen, read_summary(folder))
        return
    started = read_start(folder)
    (options if started is None else options.continued(started.engine, started.device)).check_gpu()
    from manyheads.training.start import resume

    with screen.watch(folder.name) as watcher:
        result = resume(folder, options, watcher, trust_code=trust_code)
    _show_result(screen, result, folder, profile=options.profile)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished run folders.")],
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Also draw them into this PNG file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Show runs side by side."""
    screen, picture = Screen(quiet), picture_given(plot)
    named = dict(zip(short_names(runs), runs, strict=True))
    for folder in runs:
        first = run_folders(folder)[0]
        if first != folder:
            check_same_experiment(read_experiment(first), folder)
    summaries = {name: [read_summary(run) for run in run_folders(folder)] for name, folder in named.items()}
    screen.show(compare_table(summaries))
    experiments = {name: read_experiment(run_folders(folder)[0]) for name, folder in named.items()}
    for text in differences_text({name: experiment.keys() for name, experiment in experiments.items()}):
        screen.say(text)
    if picture is not None:
        from manyheads.report.figures import compare_figure, save_figure

        save_figure(compare_figure({name: run_folders(folder) for name, folder in named.items()}), picture)
        screen.say(f"Picture: {picture}")


def evaluate_run(
    folder: RunPath,
    with_probe: Annotated[
        bool, typer.Option("--probe", help="Also fit a fresh linear head on each frozen embedding.")
    ] = False,
    device: DeviceName = "cpu",
    trust_code: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a finished run again: every head on every client's data, by hops; write RUN/evaluation.json."""
    screen = Screen(quiet)
    check_device(device)
    check_gpu(device)
    read_summary(folder)
    read_manifest(folder, ended=True)
    from manyheads.studies.reevaluate import reevaluate

    judged = reevaluate(folder, device=device, with_probe=with_probe, trust_code=trust_code)
    write_whole(folder / "evaluation.json", json.dumps(judged.measured, indent=1).encode())
    _show_tables(screen, judged.summary.model_copy(update={"taught": None}))  # teachers were counted during training
    screen.say(f"Written: {folder / 'evaluation.json'}")


@engine_options("engine", "device", "workers", "address", "gpus_per_client", "precision")
def frontier(
    experiment: ExperimentFile,
    settings: Overrides = None,
    seeds: Seeds = 1,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder for its runs.", show_default="runs/NAME-frontier")
    ] = None,
    *,
    options: EngineOptions,
    quiet: Quiet = False,
) -> None:
    """Show accuracy against bytes: smaller and smaller exchanges, gossip averaging, and FedAvg (complete graph)."""
    screen, started = Screen(quiet), Experiment.load(experiment, settings or ())
    check_seeds(seeds, started.seed)
    folder = folder_given(out) or Path("runs") / f"{experiment.stem}-frontier"
    check_no_run(folder)
    check_replaceable(folder / "frontier.png")
    check_early(started, options)
    from manyheads.report.figures import save_figure
    from manyheads.report.frontier_figure import frontier_figure
    from manyheads.setup.resolve import resolve
    from manyheads.studies.frontier import frontier_points

    loaded = resolve(started)
    made = frontier_points(loaded.experiment, loaded.dataset.classes)
    places = {name: folder / slug(name) for name in made}
    for name, cell in made.items():  # check all of them before the first is run
        check_same_experiment(resolve(cell.experiment, loaded=loaded).experiment, places[name])
    summaries: dict[str, list[Summary]] = {name: [] for name in made}
    try:
        for name, cell in made.items():
            for seed in range(loaded.experiment.seed, loaded.experiment.seed + seeds):
                place, seeded = places[name] / f"seed-{seed}", cell.experiment.with_values(seed=seed)
                summaries[name].append(run_or_continue(screen, seeded, place, options, name))
    except Interrupted:
        raise Stopped("stopped and saved; the same command continues where it stopped") from None
    screen.show(compare_table(summaries))
    points = [
        (name, cell.sends, mean(map(mean, (s.bytes_received for s in summaries[name]))), _last_head(summaries[name]))
        for name, cell in made.items()
    ]
    if seeds == 1:
        screen.say(ONE_SEED)
    save_figure(frontier_figure(points), folder / "frontier.png")
    screen.say(f"Picture: {folder / 'frontier.png'}. Runs: {folder}/*/seed-*")


def _last_head(summaries: Sequence[Summary]) -> list[float]:
    return [summary.shared_accuracy[-1] for summary in summaries]


def export(
    folder: RunPath,
    client: Annotated[str, typer.Option(help="Number or name of the client.")] = "0",
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="The new folder.", show_default="RUN/exports/NAME")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="private or shared; what is exported for the shared task says nothing of the client's own labels.",
            show_default="both",
        ),
    ] = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Write a client's model as files with a model card, for `manyheads.load_model`."""
    if task not in (None, "private", "shared"):
        raise ConfigurationError(f"--task {task}: unknown task; private or shared")
    number = client_number(folder, client_given(client))
    place = folder_given(out) or default_folder(folder, number)
    check_new_folder(place)
    read_manifest(folder, ended=True)
    from manyheads.export.write import export as export_model

    card = export_model(folder, number, place, task=task, trust_code=trust_code)
    Screen(quiet).say(f"{place}: {card['name']}, {card['heads']} heads, {len(card['classes'])} classes; see README.md")


def _show_result(screen: Screen, result: "Result", folder: Path, *, profile: bool = False) -> None:
    from manyheads.report.plots import plot_run

    pictures = plot_run(folder)
    summary = result.summary
    _show_tables(screen, summary)
    for text in collapse_text(summary.collapsed, summary.classes):
        screen.say(f"warning: {text}")
    if len(summary.shared_accuracy) > 1:
        screen.say(deploy_text(summary))
    if warning := no_gain_text([summary], read_settings(folder)):
        screen.say(warning)
    screen.say(
        f"{summary.steps} steps in {summary.seconds:.1f} s "
        f"({summary.client_steps_per_second:.0f} client-steps/s); received by all clients together: "
        f"{bytes_text(sum(summary.bytes_received))}. Run: {folder}; pictures: {pictures[0].parent}"
    )
    if profile:
        screen.say(time_text(summary))
        screen.say(f"A trace of two steps, for chrome://tracing or ui.perfetto.dev: {folder / 'trace.json'}")


def _show_tables(screen: Screen, summary: Summary) -> None:
    """Show accuracies; if clients learn from each other, also by hops, and who taught whom."""
    screen.show(run_table(summary))
    for text in after_text(summary):
        screen.say(text)
    if sum(summary.bytes_received) > 0:
        screen.show(hop_table(summary))
    if summary.taught is not None:
        screen.show(taught_table(summary))
        if summary.taught.own_right is not None:
            screen.show(taught_by_class_table(summary))

"""Several runs that belong together: the seeds of one experiment, side by side in a folder."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.console import Screen
from manyheads.engine.options import EngineOptions
from manyheads.errors import RunError, Stopped
from manyheads.runs.read import read_experiment, read_summary
from manyheads.runs.summary import Summary

BETWEEN_RUNS = "stopped before the next run; finished runs are saved"


def run_or_continue(
    screen: Screen, experiment: Experiment, folder: Path, options: EngineOptions, name: str = "", title: str = ""
) -> Summary:
    """Run one of several runs, or continue it where the same command was stopped.

    The title, by default `name` and the seed, is shown while it runs.
    """
    same = (folder / "experiment.toml").exists()
    if same and (folder / "summary.json").exists():
        plot_if_missing(folder)
        return read_summary(folder)
    from manyheads.report.plots import plot_run
    from manyheads.training.start import resume, train

    with screen.watch(title or f"{name} seed {experiment.seed}".strip()) as watcher:
        # `check_same_experiment` found the experiment that the user has just given, so its code is trusted.
        continued = functools.partial(resume, folder, trust_code=True)
        go = continued if same else functools.partial(train, experiment, folder)
        result = go(options, watcher)
    plot_run(folder)
    if result.stop_requested:
        raise Stopped(BETWEEN_RUNS)
    return result.summary


def check_same_experiment(experiment: Experiment, folder: Path) -> None:
    """Refuse to mix experiments: the runs in a folder of several seeds differ only in the seed."""
    wanted = experiment.fingerprint(seed=False)
    for place in run_folders(folder):
        if place != folder and read_experiment(place).fingerprint(seed=False) != wanted:
            raise RunError(f"{place}: holds a different experiment; give another folder with --out")


def plot_if_missing(folder: Path) -> None:
    """Draw the pictures of a run that was killed between its end and its pictures."""
    if not (folder / "plots").exists():
        from manyheads.report.plots import plot_run

        plot_run(folder)


def run_folders(folder: Path) -> list[Path]:
    """Return the folder of a run, or those of the seeds in a folder of `--seeds`."""
    seeds = [path.parent for path in folder.glob("seed-*/experiment.toml")]
    return sorted(seeds, key=lambda path: (len(path.name), path.name)) or [folder]


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return paths without the part that all of them share."""
    common = os.path.commonpath([folder.absolute().parent for folder in folders])
    return [str(folder.absolute().relative_to(common)) for folder in folders]

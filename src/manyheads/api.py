"""What `import manyheads` offers to whoever trains from Python."""

import contextlib
from pathlib import Path
from typing import Unpack

from manyheads.config.experiment import Experiment
from manyheads.console import progress_of
from manyheads.engine.options import EngineKeywords, EngineOptions
from manyheads.training import start
from manyheads.training.observer import Observer
from manyheads.training.result import Result


def train(
    experiment: Experiment | str | Path,
    folder: str | Path | None = None,
    *,
    progress: bool = True,
    observer: Observer | None = None,
    **how: Unpack[EngineKeywords],
) -> Result:
    """Run an experiment (or the TOML file of one) from the beginning; with a folder, record and save it there.

    It shows its progress, unless `progress` is false or an `observer` is told instead: a bar in a terminal and in a
    notebook, elsewhere a line now and then on standard error.

    `engine` is "plain", "parallel", "cuda" or "ray", `device` "cpu" or "cuda". `workers` are those of engine
    "parallel"; `address` and `gpus_per_client` belong to engine "ray"; `precision` is that of a GPU (bf16, tf32 or
    float32). `profile` writes a trace of two steps into the folder, beside where the time went, which
    `summary["time"]` always says. Code that the experiment names is imported: it is your experiment.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.load(experiment)
    title = experiment.algorithm.name if folder is None else Path(folder).name
    with _watching(title, progress, observer) as watcher:
        return start.train(experiment, folder, EngineOptions(**how), watcher)


def resume(
    folder: str | Path,
    *,
    trust_code: bool = False,
    progress: bool = True,
    observer: Observer | None = None,
    **how: Unpack[EngineKeywords],
) -> Result:
    """Go on with a run that was stopped or killed; it ends as if it had never been.

    On the engine and device that it was started on, in the same precision, unless told otherwise. Code that it names
    is imported where you made this run here, or with `trust_code`. Progress is shown as by `train`.
    """
    with _watching(Path(folder).name, progress, observer) as watcher:
        return start.resume(folder, EngineOptions(**how), watcher, trust_code=trust_code)


def _watching(
    title: str, progress: bool, observer: Observer | None
) -> contextlib.AbstractContextManager[Observer | None]:
    """Who is told of a run."""
    if observer is None and progress:
        return progress_of(title)
    return contextlib.nullcontext(observer)

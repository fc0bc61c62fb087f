"""The functions that train from Python: `manyheads.train` and `manyheads.resume`."""

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
    """Run an experiment from the beginning. Code that the experiment names is imported: it is your experiment.

    Args:
        experiment: an `Experiment`, or the path of its TOML file.
        folder: a new folder, in which the run is recorded and saved. Without one, nothing is written.
        progress: show a bar in a terminal or notebook, elsewhere a line now and then on standard error.
        observer: is called instead of showing progress.
        how: the options of the engine, which are the fields of `EngineOptions`. `engine` is "plain", "parallel",
            "cuda" or "ray", `device` "cpu" or "cuda"; `profile` writes a trace of two steps into the folder.

    >>> from manyheads import Experiment, train
    >>> training = {"steps": 2, "warmup_steps": 0, "batch_size": 8, "public_batch_size": 8}
    >>> tiny = Experiment(clients=2, data={"source": "digits"}, model={"width": 2}, training=training)
    >>> result = train(tiny, progress=False)
    >>> result.summary.steps, len(result.summary.shared_accuracy), len(result.clients)
    (2, 5, 2)
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
    """Resume a run that was stopped or killed; it ends with the same bits as one that was not.

    Args:
        folder: the run folder.
        trust_code: import the code and fetch the data that the run names, even if you did not make it on this machine.
        progress: show progress, as `train` does.
        observer: is called instead of showing progress.
        how: as for `train`; by default engine, device and precision are those that the run was started with.

    >>> import tempfile
    >>> from manyheads import Experiment, Interrupted, resume, train
    >>> from manyheads.training.observer import SilentObserver
    >>> class StopAtOnce(SilentObserver):
    ...     def progressed(self, client_steps):
    ...         import signal
    ...         signal.raise_signal(signal.SIGTERM)
    >>> training = {"steps": 2, "warmup_steps": 0, "batch_size": 8, "public_batch_size": 8}
    >>> tiny = Experiment(clients=2, data={"source": "digits"}, model={"width": 2}, training=training)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         _ = train(tiny, f"{folder}/run", observer=StopAtOnce())
    ...     except Interrupted as stopped:
    ...         print(stopped.step)
    ...     resume(f"{folder}/run", progress=False).summary.steps
    0
    2
    """
    with _watching(Path(folder).name, progress, observer) as watcher:
        return start.resume(folder, EngineOptions(**how), watcher, trust_code=trust_code)


def _watching(
    title: str, progress: bool, observer: Observer | None
) -> contextlib.AbstractContextManager[Observer | None]:
    """Return the observer of a run, in its context."""
    if observer is None and progress:
        return progress_of(title)
    return contextlib.nullcontext(observer)

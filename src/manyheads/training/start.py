"""Start a run, or go on with one."""

import contextlib
from dataclasses import replace
from pathlib import Path

import torch

from manyheads.config.experiment import Experiment
from manyheads.engine import home, options_for
from manyheads.engine.memory import enough_memory
from manyheads.errors import ConfigurationError, TrainingError
from manyheads.runs.code import remember_run, trust_in_run
from manyheads.runs.folder import RunFolder
from manyheads.runs.manifest import last_save
from manyheads.runs.read import check_free, read_events, read_experiment
from manyheads.runs.record import InMemory
from manyheads.runs.remove import remove_run
from manyheads.setup.build import assemble
from manyheads.training.loop import _Run
from manyheads.training.observer import Observer, SilentObserver
from manyheads.training.result import Result

UNRECORDED = (
    "your state folder cannot be written, so this run's code is not recorded as yours: "
    "to go on with this run or to use it needs --trust-code (in Python: trust_code=True)"
)


def train(
    experiment: Experiment | str | Path,
    folder: str | Path | None = None,
    *,
    engine: str = "plain",
    device: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_client: float | None = None,
    precision: str | None = None,
    profile: bool = False,
    observer: Observer | None = None,
) -> Result:
    """Run an experiment (or the TOML file of one) from the beginning; with a folder, record and save it there.

    `workers` are those of engine "parallel"; `address` and `gpus_per_client` belong to engine "ray"; `precision` is
    that of a GPU (bf16, tf32 or float32). `profile` writes a trace of two steps into the folder, beside where the time
    went, which `summary["time"]` always says. Code that the experiment names is imported: it is your experiment.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.load(experiment)
    path = None if folder is None else Path(folder)
    if path is not None:
        check_free(path)
    options = options_for(engine, device, workers, address, gpus_per_client, precision)
    with enough_memory():
        ensemble = assemble(experiment, home(engine, options.device))
    run = _Run(ensemble, engine, options, observer or SilentObserver(), path, profile)
    if path is None:
        return run.go(InMemory())
    with contextlib.closing(
        RunFolder.create(path, ensemble.resolved.experiment, ensemble.resolved.dataset.fingerprint())
    ) as record:
        if not remember_run(path, ensemble.resolved.trust):
            run.observer.noted(UNRECORDED)
        try:
            return run.go(record)
        except (TrainingError, ConfigurationError):
            if record.saved_step is None:  # a folder from which nothing can go on helps nobody
                record.close()
                remove_run(path)
            raise


def resume(
    folder: str | Path,
    *,
    engine: str | None = None,
    device: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_client: float | None = None,
    precision: str | None = None,
    profile: bool = False,
    trust_code: bool = False,
    observer: Observer | None = None,
) -> Result:
    """Go on with a run that was stopped or killed; it ends as if it had never been.

    On the engine and device that it was started on, in the same precision, unless told otherwise. Code that it names
    is imported where you made this run here, or with `trust_code`.
    """
    path = Path(folder)
    experiment = read_experiment(path)
    started = next(iter(read_events(path)), {}) if (path / "metrics.jsonl").exists() else {}
    saved = last_save(path)
    engine, device = engine or started.get("engine", "plain"), device or (None if engine else started.get("device"))
    options = options_for(engine, device, workers, address, gpus_per_client, precision)
    moved = torch.device(options.device).type != torch.device(started.get("device", "cpu")).type
    if precision is None and not moved:  # on another kind of device it computes as is usual there
        options = replace(options, precision=started.get("precision", options.precision))
    trust = trust_in_run(path, said=trust_code)
    with enough_memory():
        ensemble = assemble(experiment, home(engine, options.device), pretrained=saved is None, trust=trust)
    run = _Run(ensemble, engine, options, observer or SilentObserver(), path, profile)
    with contextlib.closing(RunFolder(path, ensemble.resolved.dataset.fingerprint())) as record:
        return run.go(record, go_on=True)

"""Starting a run, and resuming one."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.engine.defaults import local_device, resolve_options
from manyheads.engine.options import EngineOptions, ResolvedOptions
from manyheads.errors import ConfigurationError, RunError, TrainingError
from manyheads.memory import enough_memory
from manyheads.runs.events import StartEvent
from manyheads.runs.folder import RunFolder
from manyheads.runs.manifest import last_save
from manyheads.runs.read import check_new_folder, read_experiment, read_start
from manyheads.runs.record import MemoryRecord
from manyheads.runs.trust import remember_run, trust_in_run
from manyheads.setup.build import assemble
from manyheads.training.loop import RunLoop
from manyheads.training.observer import Observer, SilentObserver
from manyheads.training.result import Result

UNRECORDED = (
    "your state folder cannot be written, so what this run imports or fetches is not recorded as yours: "
    "resuming or using this run will need --trust-code (in Python: trust_code=True)"
)


def train(
    experiment: Experiment | str | Path,
    folder: str | Path | None = None,
    options: EngineOptions | None = None,
    observer: Observer | None = None,
) -> Result:
    """Run an experiment (or its TOML file) from the beginning; with a folder, record and save it there."""
    if not isinstance(experiment, Experiment):
        experiment = Experiment.load(experiment)
    path = None if folder is None else Path(folder)
    if path is not None:
        check_new_folder(path)
    resolved = resolve_options(options or EngineOptions())
    with enough_memory():
        ensemble = assemble(experiment, local_device(resolved))
    run = RunLoop(ensemble, resolved, observer or SilentObserver(), path)
    if path is None:
        return run.run(MemoryRecord())
    made = [parent for parent in path.parents if not parent.exists()]
    with contextlib.closing(
        RunFolder.create(path, ensemble.resolved.experiment, ensemble.resolved.dataset.fingerprint())
    ) as record:
        if not remember_run(path, ensemble.resolved.trust):
            run.observer.noted(UNRECORDED)
        try:
            with _left_at_once(path):
                return run.run(record)
        except (TrainingError, ConfigurationError) as error:
            if record.saved_step is None:  # a folder from which nothing can be resumed is of no use
                try:
                    record.remove()
                except RunError as replaced:
                    raise RunError(f"{error}; {replaced}") from None
                for parent in made:
                    with contextlib.suppress(OSError):  # somebody has something in it
                        parent.rmdir()
            raise


def resume(
    folder: str | Path,
    options: EngineOptions | None = None,
    observer: Observer | None = None,
    *,
    trust_code: bool = False,
) -> Result:
    """Resume a run that was stopped or killed; it ends with the same bits as one that was not."""
    path = Path(folder)
    experiment = read_experiment(path)
    started = read_start(path)
    saved = last_save(path)
    resolved = _as_started(options or EngineOptions(), started)
    trust = trust_in_run(path, trust_code=trust_code)
    with enough_memory():
        ensemble = assemble(experiment, local_device(resolved), pretrained=saved is None, trust=trust)
    run = RunLoop(ensemble, resolved, observer or SilentObserver(), path, step=0 if saved is None else saved.step)
    with contextlib.closing(RunFolder(path, ensemble.resolved.dataset.fingerprint())) as record:
        record.saved_step = None if saved is None else saved.step  # known even if it is stopped before it is restored
        with _left_at_once(path):
            return run.run(record, resumed=True)


@contextlib.contextmanager
def _left_at_once(folder: Path) -> Iterator[None]:
    """Let a second Ctrl-C, which does not wait for a save, say how the run continues."""
    try:
        yield
    except KeyboardInterrupt:
        how = f"left at once; continue from the last save with: manyheads resume {folder}"
        raise KeyboardInterrupt(how) from None


def _as_started(options: EngineOptions, started: StartEvent | None) -> ResolvedOptions:
    """Fill in options from the first event of the run; on another kind of device, the precision is the usual one."""
    if started is None:
        return resolve_options(options)
    resolved = resolve_options(options.continued(started.engine, started.device))
    moved = _kind(resolved.device) != _kind(started.device)
    if options.precision is None and not moved:
        resolved = replace(resolved, precision=started.precision)
    return resolved


def _kind(device: str) -> str:
    return device.partition(":")[0]

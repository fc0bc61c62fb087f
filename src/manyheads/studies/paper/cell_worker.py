"""The worker processes of the runner: they run one cell after the other, report progress, and stop when asked to."""

import gc
import os
import platform
import re
import signal
import threading
import time
import tomllib
import traceback
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import tomli_w
import torch

from manyheads.config.data import SourceConfig
from manyheads.config.experiment import Experiment
from manyheads.errors import Interrupted, ManyheadsError, RunError
from manyheads.files import write_whole
from manyheads.rounding import rounding
from manyheads.runs.manifest import read_manifest
from manyheads.runs.read import read_experiment, read_summary
from manyheads.runs.remove import check_removable, remove_run
from manyheads.setup.build import Ensemble
from manyheads.setup.resolve import resolve
from manyheads.studies.paper.code_of_numbers import code_of_numbers
from manyheads.studies.paper.jobs import CellFailed, Job
from manyheads.studies.paper.results import CellResult, result_of
from manyheads.training.observer import SilentObserver
from manyheads.training.start import resume, train

REPORT_SECONDS = 0.5
_messages: Any = None  # in a worker: the queue for its reports
_stopping = threading.Event()  # in a worker: it was asked to stop, perhaps before it trained


def begin_worker(messages: Any) -> None:
    """Prepare a worker process. Ctrl-C is left to the parent, which then asks its workers to stop."""
    global _messages
    _messages = messages
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A worker that dies at once, because it has nothing to do, would break the pool, which then kills the others.
    signal.signal(signal.SIGTERM, lambda number, frame: _stopping.set())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code_of_numbers()  # cached now, as imported: somebody may change the files while cells run


def _end_with_parent() -> None:
    """Save and leave once the parent process is gone."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    while not idle.wait(timeout=1.0):
        pass
    os._exit(1)


idle = threading.Event()


class _JobObserver(SilentObserver):
    """An observer that reports work now and then, and notes at once."""

    def __init__(self, job: Job) -> None:
        self._name = f"{job.cell}, seed {job.experiment.seed}"
        self._work_per_step = job.work / (job.experiment.clients * job.experiment.training.steps)
        self._done, self._reported = 0.0, time.perf_counter()

    def started(self, ensemble: Ensemble, step: int) -> None:
        self._done += step * ensemble.resolved.experiment.clients * self._work_per_step
        if _stopping.is_set():  # the signal came before the run could hear it
            os.kill(os.getpid(), signal.SIGTERM)

    def progressed(self, client_steps: int) -> None:
        self._done += client_steps * self._work_per_step
        if time.perf_counter() - self._reported >= REPORT_SECONDS:
            self.report()

    def noted(self, text: str) -> None:
        if _messages is not None:
            _messages.put(f"{self._name}: {text}")

    def went_back(self, step: int, why: str) -> None:
        self.noted(f"{why}; continues from step {step}")

    def report(self) -> None:
        if _messages is not None:
            _messages.put(self._done)
        self._done, self._reported = 0.0, time.perf_counter()


def run_job(job: Job) -> CellResult | None:
    """Run a cell, or continue it, in this process; return None if it was asked to stop."""
    if _stopping.is_set():
        return None
    idle.clear()
    try:
        device = _run(job)
        name, asked = hardware_name(device), None if on_gpu(device) else rounding()
        return result_of(job.experiment, job.folder, cell=job.cell, scale=job.scale, hardware=name, rounding=asked)
    except Interrupted:
        return None
    except ManyheadsError as error:
        raise CellFailed(str(error)) from None  # one that can travel between processes
    except Exception as error:
        place = job.folder.with_name(f"{job.folder.name}.error.txt")
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, traceback.format_exc().encode())
        raise CellFailed(f"{type(error).__name__}: {error} (see {place})") from None
    finally:
        free_memory()
        idle.set()


def _run(job: Job) -> str:
    """Run or continue a job in its folder, and return the device that it trained on."""
    if (job.folder / "summary.json").exists():
        if not job.again and (job.folder / "checkpoints" / "manifest.json").exists():
            _check_experiment(job)
            read_manifest(job.folder, ended=True)
            return str(read_summary(job.folder).device)
        check_removable(job.folder)
        remove_run(job.folder)  # to be made again, perhaps because its result was stored and then removed
    observer = _JobObserver(job)
    begun = (job.folder / "experiment.toml").exists()
    if begun:
        _check_experiment(job)
        _point_at_data(job)
    go = partial(resume, job.folder) if begun else partial(train, job.experiment, job.folder)
    try:
        return str(go(job.options, observer).summary.device)
    finally:
        observer.report()


def _check_experiment(job: Job) -> None:
    """Refuse a folder that holds a run of something else than the job: it would be stored as the job's result."""
    wanted = resolve(job.experiment).experiment
    found = _with_data_of(job, read_experiment(job.folder))
    if found.fingerprint() != wanted.fingerprint():
        raise RunError(
            f"{job.folder}: holds a run of another experiment than this cell; move it away, and the same command runs "
            "the cell anew"
        )


def _with_data_of(job: Job, found: Experiment) -> Experiment:
    """Return an experiment as if its data lay where those of the job lie."""
    data, public = job.experiment.data, job.experiment.data.public
    of_public = found.data.public
    if isinstance(public, SourceConfig) and isinstance(of_public, SourceConfig):
        of_public = of_public.model_copy(update={"path": public.path})
    moved = found.data.model_copy(update={"path": data.path, "public": of_public})
    return found.model_copy(update={"data": moved})


def _point_at_data(job: Job) -> None:
    """Write the present place of the data into the run folder: they may have been moved since the run was stopped."""
    place, data = job.folder / "experiment.toml", job.experiment.data
    then = place.read_text(encoding="utf-8")
    values = tomllib.loads(then)
    if data.path is not None:
        values["data"]["path"] = data.path
    if not isinstance(data.public, str | None):
        values["data"]["public"]["path"] = data.public.path
    if values != tomllib.loads(then):
        write_whole(place, tomli_w.dumps(values).encode())


def free_memory() -> None:
    """Free CUDA graphs and their memory before the next cell."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def on_gpu(device: str) -> bool:
    return torch.device(device).type == "cuda"


def hardware_name(device: str) -> str:
    """Name the GPU or the processor that computed."""
    return torch.cuda.get_device_name(torch.device(device)) if on_gpu(device) else processor_name()


def processor_name() -> str:
    """Name the processor and the vector instructions that PyTorch uses: they decide the order of sums."""
    listed = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", listed.read_text()) if listed.exists() else []
    return f"{names[0].strip() if names else platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"

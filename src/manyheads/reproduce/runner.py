"""Cells are ordinary runs: what is missing is run, several in each worker process, small ones at the same time."""

import contextlib
import gc
import os
import platform
import re
import shutil
import signal
import threading
import time
import tomllib
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import tomli_w
import torch

from manyheads.engine import ENGINES, home, options_for
from manyheads.engine.base import Window
from manyheads.engine.parallel import usable_cores
from manyheads.ensemble import Ensemble, assemble
from manyheads.errors import ManyheadsError, Stopped, TrainingError
from manyheads.experiment import Experiment
from manyheads.files import write_whole
from manyheads.reproduce.base import Reproduction
from manyheads.reproduce.results import (
    Result,
    Stored,
    code_of_numbers,
    first_like,
    key_of,
    result_of,
    same_numbers,
    slug,
    write_result,
)
from manyheads.reproduce.scales import Scale
from manyheads.runs import read_summary
from manyheads.training import Interrupted, Silent, one_thread, resume, train

TELL_SECONDS = 0.5
FULL_GPU = 4  # clients whose steps fill a GPU: more at a time would only wait for each other
How = Mapping[str, Any]  # the keywords of `train` that say how windows are run


@dataclass(frozen=True)
class Job:
    """A cell for one seed that is to be run."""

    cell: str  # with the name of its reproduction
    scale: str
    experiment: Experiment
    folder: Path
    how: How
    again: bool = False  # also where its run has ended already

    @property
    def work(self) -> float:
        """About how long it takes, in units that compare jobs with equal models: samples that pass through a model."""
        training, options = self.experiment.training, self.experiment.algorithm.options()
        passes = 3.0 * training.batch_size
        if self.experiment.algorithm.name == "mhd":
            passes += (3.0 + options.get("targets_per_step", 1)) * training.public_batch_size
        return self.experiment.clients * training.steps * passes

    @property
    def share(self) -> float:
        """How much of the machine it keeps busy: a core, or the part of a GPU that its clients fill."""
        if self.how["engine"] == "cuda":
            return min(1.0, self.experiment.clients / FULL_GPU)
        on_a_core = self.how["engine"] == "plain" and (self.how.get("device") or "cpu") == "cpu"
        return 1.0 / usable_cores() if on_a_core else 1.0


@dataclass(frozen=True)
class Plan:
    """What a reproduction needs, and what of it is stored already."""

    jobs: list[Job]
    stored: int
    stale: int  # stored, but made by other code


def plan(
    reproductions: Sequence[Reproduction],
    scale: Scale,
    *,
    seeds: int | None,
    only: Sequence[str],
    data: Path | None,
    stored: Stored,
    out: Path,
    how: How,
    again: bool = False,
    keep: bool = False,
) -> Plan:
    """The jobs for what is missing, one table after the other, in each the longest first.

    A cell that several tables have is run once.
    """
    jobs: list[Job] = []
    due, done, stale = set[tuple[str, int]](), set[tuple[str, int]](), 0
    for reproduction in reproductions:
        own = []
        for name, cell in reproduction.cells(scale).items():
            if only and name not in only:
                continue
            for seed in range(reproduction.seeds_asked(scale) if seeds is None else seeds):
                at = key_of(cell), seed
                have = stored.get(at)
                if at in due:
                    continue
                if have is not None and not again:
                    if keep or same_numbers(have.code):
                        done.add(at)
                        continue
                    stale += 1
                label = f"{reproduction.name} {name}"
                made_by = f"{first_like(code_of_numbers())[:6]}{_device(how)}"
                folder = out / scale.name / f"{slug(label)}-seed-{seed}-{at[0][:6]}-{made_by}"
                own.append(Job(label, scale.name, scale.at(cell.with_values(seed=seed), data), folder, how, again))
                due.add(at)
        jobs += sorted(own, key=lambda job: -job.work)
    return Plan(jobs, len(done), stale)


def _device(how: How) -> str:
    """What a run may not change on its way: of a CPU all engines give the same bits."""
    options = options_for(**how)
    return "" if options.device == "cpu" else f"-{options.device.partition(':')[0]}-{options.precision}"


class CellFailed(TrainingError):
    """A cell could not be run; the others were."""


class WorkerLost(CellFailed):
    """A worker process is gone, and with it all that was still to do."""


class Watching:
    """What a person may want to hear while many cells run; this one does nothing about it."""

    def progressed(self, work: float) -> None:
        """So much work was done."""

    def noted(self, text: str) -> None:
        """Something that a person should know."""

    def stopping(self) -> None:
        """Somebody asked to stop: runs go on to the end of their window and save."""


def run_all(
    jobs: Sequence[Job], results: Path, *, at_once: int | None = None, watching: Watching | None = None
) -> Generator[Result, None, None]:
    """Run jobs in worker processes, store each result when it is there, and give it.

    As many at a time as fill the machine, or `at_once`.
    """
    watching = watching or Watching()
    context = get_context("spawn")  # a fork would lose what a GPU's driver started
    told: Any = context.SimpleQueue()
    others = active_children()
    most = at_once or max(FULL_GPU, usable_cores())
    with ProcessPoolExecutor(most, context, _worker, (told,)) as pool, _listening(told, watching):
        waiting, problems = list(jobs), list[str]()
        running: dict[Future[Result | None], Job] = {}
        try:
            with _terminated_like_interrupted():
                while waiting or running:
                    while (job := _next(waiting, list(running.values()), at_once)) is not None:
                        waiting.remove(job)
                        running[pool.submit(run_job, job)] = job
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running.pop(future)
                        if isinstance(error := future.exception(), CellFailed):
                            problems.append(f"{job.cell}, seed {job.experiment.seed}: {error}")
                        elif (result := future.result()) is None:
                            stopped = "a worker process was stopped; the same command goes on"
                            raise WorkerLost("; ".join([*problems, stopped]))
                        else:
                            write_result(results, result)
                            shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
                            yield result
        except KeyboardInterrupt:
            watching.stopping()
            stopped = "stopped; the same command goes on where each cell was last saved"
            raise Stopped("; ".join([*problems, stopped])) from None
        except BrokenProcessPool:
            lost = (
                "a worker process was lost, perhaps for want of memory; the same command goes on, with --at-once 1 it "
                "needs less"
            )
            raise WorkerLost("; ".join([*problems, lost])) from None
        finally:
            if running:
                _stop_workers(pool, running, [child for child in active_children() if child not in others])
        if problems:
            raise CellFailed("; ".join(problems))


def _next(waiting: Sequence[Job], running: Sequence[Job], at_once: int | None) -> Job | None:
    """The first that fits beside those that run."""
    if at_once is not None:
        return waiting[0] if waiting and len(running) < at_once else None
    free = 1.0 + 1e-9 - sum(job.share for job in running)
    return next((job for job in waiting if job.share <= free), None)


def _stop_workers(
    pool: ProcessPoolExecutor, running: Mapping[Future[Any], Job], workers: Sequence[BaseProcess]
) -> None:
    """Nothing new begins; what runs is asked to save. A second Ctrl-C does not wait for that."""
    for future in running:
        future.cancel()
    for worker in workers:
        worker.terminate()
    try:
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt:
        for worker in workers:
            worker.kill()


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _listening(told: Any, watching: Watching) -> Iterator[None]:
    """Pass on what workers tell, in a thread of its own: work that was done, or a note."""

    def listen() -> None:
        while (what := told.get()) is not None:
            if isinstance(what, str):
                watching.noted(what)
            else:
                watching.progressed(what)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        told.put(None)
        thread.join()


_told: Any = None  # in a worker: where it tells of its progress
_stopping = threading.Event()  # in a worker: it was asked to stop, perhaps before it trained


def _worker(told: Any) -> None:
    """Ctrl-C is for the process that was started, which then asks its workers to stop."""
    global _told
    _told = told
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One that dies at once, because it has nothing to do, would break the pool, which then kills the others.
    signal.signal(signal.SIGTERM, lambda number, frame: _stopping.set())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code_of_numbers()  # as it is now, when it was imported: somebody may change the files while cells run


def _end_with_parent() -> None:
    """Nobody is there any more who asked for this: save, and leave."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    while not _idle.wait(timeout=1.0):
        pass
    os._exit(1)


_idle = threading.Event()
_idle.set()


class _Telling(Silent):
    """Tells of work, now and then, and of notes."""

    def __init__(self, job: Job) -> None:
        self._name = f"{job.cell}, seed {job.experiment.seed}"
        self._of_one = job.work / (job.experiment.clients * job.experiment.training.steps)
        self._done, self._said = 0.0, time.perf_counter()

    def started(self, ensemble: Ensemble, step: int) -> None:
        self._done += step * ensemble.experiment.clients * self._of_one
        if _stopping.is_set():  # before there was anybody who heard it
            os.kill(os.getpid(), signal.SIGTERM)

    def progressed(self, client_steps: int) -> None:
        self._done += client_steps * self._of_one
        if time.perf_counter() - self._said >= TELL_SECONDS:
            self.tell()

    def noted(self, text: str) -> None:
        if _told is not None:
            _told.put(f"{self._name}: {text}")

    def went_back(self, step: int, why: str) -> None:
        self.noted(f"{why}; goes on from step {step}")

    def tell(self) -> None:
        if _told is not None:
            _told.put(self._done)
        self._done, self._said = 0.0, time.perf_counter()


def run_job(job: Job) -> Result | None:
    """Run a cell, or go on with it, in this process; None where it was asked to stop."""
    if _stopping.is_set():
        return None
    _idle.clear()
    try:
        device = _run(job)
        return result_of(job.experiment, job.folder, cell=job.cell, scale=job.scale, hardware=hardware(device))
    except Interrupted:
        return None
    except ManyheadsError as error:
        raise CellFailed(str(error)) from None  # one that can travel between processes
    except Exception as error:
        place = job.folder.with_name(f"{job.folder.name}.error.txt")
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, traceback.format_exc().encode())
        raise CellFailed(f"{type(error).__name__}: {error} ({place} says where)") from None
    finally:
        _let_go()
        _idle.set()


def _run(job: Job) -> str:
    """Says on which device."""
    if (job.folder / "summary.json").exists():
        if not job.again and (job.folder / "checkpoints" / "manifest.json").exists():
            return str(read_summary(job.folder)["device"])
        old = job.folder.with_name(f".{job.folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(job.folder, old)  # to be made again, perhaps because its result was stored and then removed
        shutil.rmtree(old)
    telling = _Telling(job)
    go_on = (job.folder / "experiment.toml").exists()
    if go_on:
        _point_at_data(job)
    go = partial(resume, job.folder) if go_on else partial(train, job.experiment, job.folder)
    try:
        return str(go(**job.how, observer=telling).summary["device"])
    finally:
        telling.tell()


def _point_at_data(job: Job) -> None:
    """Where they are now: they may have been moved since it was stopped."""
    place, data = job.folder / "experiment.toml", job.experiment.data
    then = place.read_text(encoding="utf-8")
    values = tomllib.loads(then)
    if data.path is not None:
        values["data"]["path"] = data.path
    if not isinstance(data.public, str | None):
        values["data"]["public"]["path"] = data.public.path
    if values != tomllib.loads(then):
        write_whole(place, tomli_w.dumps(values).encode())


def _let_go() -> None:
    """Graphs and their memory, before the next cell comes."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def hardware(device: str) -> str:
    """The name of what computed."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(torch.device(device))
    return processor()


def processor() -> str:
    """With the vector instructions that PyTorch uses on it: sums are in another order with others."""
    listed = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", listed.read_text()) if listed.exists() else []
    return f"{names[0].strip() if names else platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


def seconds_for(job: Job) -> float:
    """About how long a job takes here, from a few steps of it; on a CPU from two clients with small batches."""
    options = options_for(**job.how)
    on_cpu = options.device == "cpu"
    tried, steps = (_smaller(job.experiment), 1) if on_cpu else (job.experiment, 10)
    engine = ENGINES[job.how["engine"]](assemble(tried, home(job.how["engine"], options.device)), options)
    with one_thread(), contextlib.closing(engine):
        engine.exchange(step=0)
        engine.train(Window(0, steps), lambda _: None)
        began = time.perf_counter()
        engine.train(Window(steps, 2 * steps), lambda _: None)
        spent = time.perf_counter() - began
    del engine
    _let_go()
    done = replace(job, experiment=tried.with_values(training={"steps": steps})).work
    return spent * job.work / done / (usable_cores() if on_cpu else 1)


def _smaller(experiment: Experiment) -> Experiment:
    """With two clients (lists hold one entry for each) and small batches."""
    lists = {key: getattr(experiment.model, key)[:2] for key in experiment.model.lists}
    targets = experiment.algorithm.options().get("targets_per_step", 1)
    pool = {"pool_size": max(2, targets)} if experiment.algorithm.name == "mhd" else {}
    batches = {"batch_size": 8, "public_batch_size": 8}
    return experiment.with_values(clients=2, model=lists, algorithm=pool, training=batches)


def try_out(job: Job, steps: int) -> float:
    """Take a few steps of a cell, keep nothing, and say how many seconds they took."""
    began = time.perf_counter()
    values: dict[str, Any] = {"training": {"steps": steps, "warmup_steps": 0}, "evaluate": {"every": steps}}
    if job.experiment.algorithm.name == "fedmd":
        values["algorithm"] = {"first_private_steps": 0, "digest_steps": steps - 1, "revisit_steps": 1}
    elif job.experiment.algorithm.name == "mhd":
        values["algorithm"] = {"pool_every": min(job.experiment.algorithm.options()["pool_every"], steps - 1)}
    train(job.experiment.with_values(**values), **job.how)
    return time.perf_counter() - began

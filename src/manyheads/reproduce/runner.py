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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch

from manyheads.engine import ENGINES, home, options_for
from manyheads.engine.base import Window
from manyheads.engine.parallel import usable_cores
from manyheads.ensemble import assemble
from manyheads.errors import ManyheadsError, TrainingError
from manyheads.experiment import Experiment
from manyheads.reproduce.base import Found, Reproduction
from manyheads.reproduce.results import Result, Stored, code_of_numbers, key_of, result_of, slug, write_result
from manyheads.reproduce.scales import Scale
from manyheads.runs import read_events, read_summary
from manyheads.training import Interrupted, Silent, one_thread, resume, train

TELL_SECONDS = 0.5
FULL_GPU = 8  # clients whose steps fill a GPU: more at a time would only wait for each other
How = Mapping[str, Any]  # the keywords of `train` that say how windows are run


@dataclass(frozen=True)
class Job:
    """A cell for one seed that is to be run."""

    cell: str  # with the name of its reproduction
    scale: str
    experiment: Experiment
    folder: Path
    how: How

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
        return min(1.0, self.experiment.clients / FULL_GPU) if self.how["engine"] == "cuda" else 1.0 / usable_cores()


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
    """The jobs for what is missing, the longest first. A cell that several reproductions have is run once."""
    jobs: dict[tuple[str, int], Job] = {}
    done = stale = 0
    for reproduction in reproductions:
        for name, cell in reproduction.cells(scale).items():
            if only and name not in only:
                continue
            for seed in range(default_seeds(reproduction, scale) if seeds is None else seeds):
                at = key_of(cell), seed
                have = stored.get(at)
                if at in jobs:
                    continue
                if have is not None and not again:
                    if keep or have.code == code_of_numbers():
                        done += 1
                        continue
                    stale += 1
                label = f"{reproduction.name} {name}"
                folder = out / scale.name / f"{slug(label)}-seed-{seed}-{at[0][:6]}-{code_of_numbers()[:6]}"
                jobs[at] = Job(label, scale.name, scale.at(cell.with_values(seed=seed), data), folder, how)
    return Plan(sorted(jobs.values(), key=lambda job: -job.work), done, stale)


def default_seeds(reproduction: Reproduction, scale: Scale) -> int:
    return reproduction.seeds if scale.name == "cifar100" else 1


def find(reproduction: Reproduction, scale: Scale, stored: Stored) -> Found:
    """The results of a reproduction among all that are stored, by cell and seed."""
    found: dict[str, dict[int, Result]] = {}
    cells = reproduction.cells(scale) if scale.name in reproduction.scales else {}
    for name, cell in cells.items():
        key = key_of(cell)
        found[name] = {seed: result for (of, seed), result in sorted(stored.items()) if of == key}
    return Found(found)


class Stopped(ManyheadsError):
    """Somebody asked to stop; what was under way is saved."""

    def __init__(self) -> None:
        super().__init__("stopped and saved; the same command goes on where it stopped")


class CellFailed(TrainingError):
    """A cell could not be run; the others were."""


def run_all(
    jobs: Sequence[Job],
    results: Path,
    *,
    at_once: int | None = None,
    progressed: Callable[[float], None] = lambda work: None,
) -> Iterator[Result]:
    """Run jobs in worker processes, store each result when it is there, and give it.

    As many at a time as fill the machine, or `at_once`. `progressed` is told of work that was done. A first request to
    stop lets runs end their window and save.
    """
    context = get_context("spawn")  # a fork would lose what a GPU's driver started
    told: Any = context.SimpleQueue()
    most = at_once or max(FULL_GPU, usable_cores())
    with ProcessPoolExecutor(most, context, _worker, (told,)) as pool, _listening(told, progressed):
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
                        elif (result := future.result()) is not None:
                            write_result(results, result)
                            shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
                            yield result
        except KeyboardInterrupt:
            raise Stopped from None
        finally:
            if running:
                _stop_workers(pool, running)
        if problems:
            raise CellFailed("; ".join(problems))


def _next(waiting: Sequence[Job], running: Sequence[Job], at_once: int | None) -> Job | None:
    """The first that fits beside those that run."""
    if at_once is not None:
        return waiting[0] if waiting and len(running) < at_once else None
    free = 1.0 + 1e-9 - sum(job.share for job in running)
    return next((job for job in waiting if job.share <= free), None)


def _stop_workers(pool: ProcessPoolExecutor, running: Mapping[Future[Any], Job]) -> None:
    """Nothing new begins; what runs is asked to save. A second Ctrl-C does not wait for that."""
    for future in running:
        future.cancel()
    for child in active_children():
        child.terminate()
    try:
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt:
        for child in active_children():
            child.kill()


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
def _listening(told: Any, progressed: Callable[[float], None]) -> Iterator[None]:
    """Pass on what workers tell, in a thread of its own."""

    def listen() -> None:
        while (work := told.get()) is not None:
            progressed(work)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        told.put(None)
        thread.join()


_told: Any = None  # in a worker: where it tells of its progress


def _worker(told: Any) -> None:
    """Ctrl-C is for the process that was started, which then asks its workers to stop."""
    global _told
    _told = told
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Telling(Silent):
    """Tells of work, now and then; stops when nobody is there any more who asked for it."""

    def __init__(self, job: Job) -> None:
        self._of_one = job.work / (job.experiment.clients * job.experiment.training.steps)
        self._parent = os.getppid()
        self._done, self._said = 0.0, time.perf_counter()

    def progressed(self, client_steps: int) -> None:
        self._done += client_steps * self._of_one
        if time.perf_counter() - self._said >= TELL_SECONDS:
            self.tell()
            if os.getppid() != self._parent:
                self._parent = os.getppid()
                os.kill(os.getpid(), signal.SIGTERM)

    def tell(self) -> None:
        if _told is not None:
            _told.put(self._done)
        self._done, self._said = 0.0, time.perf_counter()


def run_job(job: Job) -> Result | None:
    """Run a cell, or go on with it, in this process; None where it was asked to stop."""
    telling = _Telling(job)
    try:
        if (job.folder / "summary.json").exists():
            summary, experiment = read_summary(job.folder), job.experiment
        else:
            go_on = (job.folder / "experiment.toml").exists()
            done = (
                resume(job.folder, **job.how, observer=telling)
                if go_on
                else train(job.experiment, job.folder, **job.how, observer=telling)
            )
            summary, experiment = done.summary, job.experiment
    except Interrupted:
        return None
    except ManyheadsError as error:
        raise CellFailed(str(error)) from None  # one that can travel between processes
    finally:
        telling.tell()
        gc.collect()  # graphs and their memory go before the next cell comes
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return result_of(
        experiment,
        summary,
        read_events(job.folder),
        cell=job.cell,
        scale=job.scale,
        hardware=hardware(summary["device"]),
    )


def hardware(device: str) -> str:
    """The name of what computed."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(torch.device(device))
    return processor()


def processor() -> str:
    listed = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", listed.read_text()) if listed.exists() else []
    return names[0].strip() if names else platform.machine()


def seconds_for(job: Job) -> float:
    """About how long a job takes here, from a few steps of it."""
    options = options_for(**job.how)
    small = {"clients": 2, "training": {"batch_size": 8, "public_batch_size": 8}}
    tried = (
        job.experiment if options.device != "cpu" else job.experiment.with_values(**_fits_two(job.experiment, small))
    )
    steps = 1 if options.device == "cpu" else 10
    with (
        one_thread(),
        contextlib.closing(
            ENGINES[job.how["engine"]](assemble(tried, home(job.how["engine"], options.device)), options)
        ) as engine,
    ):
        engine.exchange(step=0)
        engine.train(Window(0, steps), lambda _: None)
        began = time.perf_counter()
        engine.train(Window(steps, 2 * steps), lambda _: None)
        spent = time.perf_counter() - began
    done = Job(job.cell, job.scale, tried.with_values(training={"steps": steps}), job.folder, job.how).work
    return spent * job.work / done


def _fits_two(experiment: Experiment, values: dict[str, Any]) -> dict[str, Any]:
    """The same with two clients: lists hold one entry for each."""
    lists = {key: getattr(experiment.model, key)[:2] for key in experiment.model.lists}
    return {**values, "model": lists, "algorithm": {"pool_size": 2} if experiment.algorithm.name == "mhd" else {}}


def try_out(job: Job, steps: int) -> float:
    """Take a few steps of a cell, keep nothing, and say how many seconds they took."""
    began = time.perf_counter()
    values: dict[str, Any] = {"training": {"steps": steps, "warmup_steps": 0}, "evaluate": {"every": steps}}
    if job.experiment.algorithm.name == "fedmd":
        values["algorithm"] = {"first_private_steps": 0, "digest_steps": steps - 1, "revisit_steps": 1}
    train(job.experiment.with_values(**values), **job.how)
    return time.perf_counter() - began

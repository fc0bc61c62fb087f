"""The runner: worker processes take one cell after the other, small cells at the same time."""

import contextlib
import signal
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from manyheads.engine.cores import usable_cores
from manyheads.errors import RunError, Stopped
from manyheads.runs.saved_files import remove_checkpoints
from manyheads.studies.paper.cell_worker import begin_worker, idle, run_job
from manyheads.studies.paper.jobs import FULL_GPU, CellFailed, CellWorkerLost, Job
from manyheads.studies.paper.results import CellResult, write_result


class RunnerObserver:
    """An observer of the runs of many cells. This one ignores everything."""

    def progressed(self, work: float) -> None:
        """Take note that this much work was done."""

    def noted(self, text: str) -> None:
        """Take note of something that a person should know."""

    def stopping(self) -> None:
        """Take note that somebody asked to stop: runs save the beginning of their window."""


def run_all(
    jobs: Sequence[Job], results: Path, *, at_once: int | None = None, observer: RunnerObserver | None = None
) -> Generator[CellResult, None, None]:
    """Run jobs in worker processes; store and yield each result as soon as it is ready.

    `at_once` jobs run at a time, by default as many as fill the machine.
    """
    observer = observer or RunnerObserver()
    context = get_context("spawn")  # a fork would lose what a GPU's driver started
    messages: Any = context.SimpleQueue()
    others = active_children()
    most = max(1, min(at_once or max(FULL_GPU, usable_cores()), len(jobs)))
    with ProcessPoolExecutor(most, context, begin_worker, (messages,)) as pool, _listening(messages, observer):
        waiting, problems = list(jobs), list[str]()
        running: dict[Future[CellResult | None], Job] = {}
        try:
            with _sigterm_as_interrupt():
                while waiting or running:
                    while (job := _next(waiting, list(running.values()), at_once)) is not None:
                        waiting.remove(job)
                        running[pool.submit(run_job, job)] = job
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running.pop(future)
                        if isinstance(error := future.exception(), CellFailed):
                            problems.append(f"{job.cell}, seed {job.experiment.seed}: {error}")
                        elif (result := future.result()) is None:
                            stopped = "a worker process was stopped; the same command continues"
                            raise CellWorkerLost("; ".join([*problems, stopped]))
                        else:
                            write_result(results, result)
                            with contextlib.suppress(OSError, RunError):
                                remove_checkpoints(job.folder)
                            yield result
        except KeyboardInterrupt:
            observer.stopping()
            stopped = "stopped; the same command continues from each cell's last save"
            raise Stopped("; ".join([*problems, stopped])) from None
        except BrokenProcessPool:
            lost = (
                "a worker process was lost, perhaps because memory ran out; the same command continues, and with "
                "--at-once 1 it needs less"
            )
            raise CellWorkerLost("; ".join([*problems, lost])) from None
        finally:
            if running:
                _stop_workers(pool, running, [child for child in active_children() if child not in others])
        if problems:
            raise CellFailed("; ".join(problems))


def _next(waiting: Sequence[Job], running: Sequence[Job], at_once: int | None) -> Job | None:
    """Return the first waiting job that fits beside the running ones."""
    if at_once is not None:
        return waiting[0] if waiting and len(running) < at_once else None
    free = 1.0 + 1e-9 - sum(job.share for job in running)
    return next((job for job in waiting if job.share <= free), None)


def _stop_workers(
    pool: ProcessPoolExecutor, running: Mapping[Future[Any], Job], workers: Sequence[BaseProcess]
) -> None:
    """Begin nothing new, and ask running workers to save. A second Ctrl-C does not wait for that."""
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
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C."""
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
def _listening(messages: Any, observer: RunnerObserver) -> Iterator[None]:
    """Pass on, in a thread, what workers report: work that was done, or a note."""

    def listen() -> None:
        while (what := messages.get()) is not None:
            if isinstance(what, str):
                observer.noted(what)
            else:
                observer.progressed(what)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        messages.put(None)
        thread.join()


idle.set()

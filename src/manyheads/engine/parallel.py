"""The parallel engine: clients are dealt out to worker processes, one thread each, that keep them for the whole run.

Processes, not threads. On two cores, two threads made 1.36 to 1.49 times the client-steps/s of the plain loop on the
demo's model and two processes 1.67 to 1.80 times: much of a small step is Python, which one thread at a time runs. On
ResNet-18 both made about 1.8 (`benchmarks/engines.py`, docs/log.md). Threads would also need a replica each.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from manyheads.engine.base import Progress
from manyheads.engine.cores import number_of_workers
from manyheads.engine.failure import RemoteError, attempted
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.pipe import ProgressReporter, Reply, receive, send
from manyheads.engine.plain import PlainTrainer
from manyheads.engine.remote import ClientPayload, RemoteEngine, RemoteWorker
from manyheads.errors import STOP_SIGNALS, WorkerLost
from manyheads.setup.build import Ensemble

GOODBYE_SECONDS = 5.0  # a worker may take this long to end


@dataclass(frozen=True)
class WorkerProcess:
    """A worker process, and the pipes to it."""

    process: BaseProcess | subprocess.Popen[bytes]
    connection: Connection
    side: Connection  # to a thread that answers while the worker is busy

    def exit_code(self, seconds: float | None) -> int | None:
        """Return the exit code of a process that ends within so many seconds; minus the signal if it was killed."""
        if isinstance(self.process, BaseProcess):
            self.process.join(seconds)
            return self.process.exitcode
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class ParallelEngine(RemoteEngine):
    """Worker processes on this machine."""

    def __init__(self, ensemble: Ensemble, options: ResolvedOptions, start: str | None = None) -> None:
        super().__init__(ensemble, number_of_workers(options.workers, len(ensemble.resolved.groups)), options)
        self._workers: list[WorkerProcess] = []
        self._busy: set[int] = set()
        atexit.register(self.close)  # before multiprocessing waits for its children
        start = start or start_method()
        try:
            for members in self._clients:
                if start == "fork":
                    self._fork(members)
                else:
                    self._spawn()
            if start == "spawn":  # all have been started before the first one listens
                for worker, members in enumerate(self._clients):
                    self._send(worker, (ensemble.resolved, ClientPayload.of(ensemble, members, "cpu")))
        except BaseException:
            self.close()
            raise

    def _fork(self, members: Sequence[int]) -> None:
        """Start a worker that shares the memory of this process: nothing is copied before it is changed."""
        context = multiprocessing.get_context("fork")
        (ours, theirs), (side, their_side) = context.Pipe(), context.Pipe()
        others = [pipe for other in self._workers for pipe in (other.connection, other.side)]
        make = partial(_forked_worker, self._ensemble, members)
        arguments = (theirs, their_side, [*others, ours, side], make)
        process = context.Process(target=_serve, args=arguments, daemon=True)
        with _without_signals(), warnings.catch_warnings():
            # Python warns that other threads may hold locks; a worker uses none of those.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        their_side.close()
        self._workers.append(WorkerProcess(process, ours, side))

    def _spawn(self) -> None:
        """Start a worker in a fresh process. Unlike multiprocessing's, it does not import the program's main file."""
        context = multiprocessing.get_context("spawn")
        (ours, theirs), (side, their_side) = context.Pipe(), context.Pipe()
        given = theirs.fileno(), their_side.fileno()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            # -P: it imports what this process would import, and not what lies in the working folder.
            [sys.executable, "-P", "-c", f"from manyheads.engine.parallel import serve_spawned; serve_spawned{given}"],
            stdin=subprocess.DEVNULL,
            pass_fds=given,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # out of reach of Ctrl-C, also while it starts
        )
        theirs.close()
        their_side.close()
        self._workers.append(WorkerProcess(process, ours, side))

    def ask_while_busy(self, method: str, *arguments: Any) -> list[Any]:
        everybody = range(len(self._workers))
        self._busy.update(everybody)  # nobody waits any more for what they do
        for worker in everybody:
            self._send(worker, (method, arguments), side=True)
        return [self._value_of(worker, self._receive(worker, side=True)) for worker in everybody]

    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        for worker, given in arguments.items():
            self._busy.add(worker)
            self._send(worker, (method, given, progress is not None))
        answers: dict[int, Any] = {}
        while len(answers) < len(arguments):
            waiting = {self._workers[worker].connection: worker for worker in arguments if worker not in answers}
            for connection in wait(list(waiting)):
                worker = waiting[connection]  # type: ignore[index]
                message = self._receive(worker)
                if isinstance(message, Reply):
                    answers[worker] = message.value
                    self._busy.discard(worker)
                if progress is not None and message.client_steps:
                    progress(message.client_steps)
        return [self._value_of(worker, answers[worker]) for worker in arguments]

    def close(self) -> None:
        atexit.unregister(self.close)
        for process in self._workers:
            process.connection.close()
            process.side.close()
        for worker, process in enumerate(self._workers):
            if worker in self._busy:  # the run ended in the middle of a window
                process.process.kill()
            if process.exit_code(GOODBYE_SECONDS) is None:
                process.process.kill()
                process.exit_code(None)
        self._workers = []

    def _value_of(self, worker: int, answer: Any) -> Any:
        if isinstance(answer, RemoteError):
            raise answer.error(f"the worker of {self._names(worker)}")
        return answer

    def _send(self, worker: int, message: Any, *, side: bool = False) -> None:
        process = self._workers[worker]
        try:
            send(process.side if side else process.connection, message)
        except OSError:
            raise self._lost(worker) from None

    def _receive(self, worker: int, *, side: bool = False) -> Any:
        process = self._workers[worker]
        try:
            return receive(process.side if side else process.connection)
        except (EOFError, OSError):
            raise self._lost(worker) from None

    def _lost(self, worker: int) -> WorkerLost:
        code = self._workers[worker].exit_code(GOODBYE_SECONDS)
        how = f"ended by itself (exit code {code})"
        if code is not None and code < 0:
            how = f"was killed ({signal.Signals(-code).name})"
        hint = "; if memory ran out, fewer --workers need less" if code == -signal.SIGKILL else ""
        return WorkerLost(f"the worker of {self._names(worker)} {how}{hint}")


def start_method() -> str:
    """Return "fork" where that is safe: it shares the data and imports nothing twice. Otherwise return "spawn".

    On a machine with a GPU, PyTorch's backward pass has started threads that a fork would lose.
    """
    return "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


def serve_spawned(descriptor: int, side: int) -> None:
    """Run a worker in a fresh process, which receives its clients through the pipe."""
    _serve(Connection(descriptor), Connection(side), [], None)


def _serve(
    connection: Connection,
    side: Connection,
    inherited: Sequence[Connection],
    make: Callable[[], RemoteWorker] | None,
) -> None:
    """Run a worker until nobody is at the other end of its pipe any more."""
    for other in inherited:  # otherwise the pipes of dead workers would stay open
        other.close()
    for number in STOP_SIGNALS:  # Ctrl-C reaches the whole process group; the parent decides what follows
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        worker = attempted(make if make is not None else lambda: _spawned_worker(*receive(connection)))
        threading.Thread(target=_answer_while_busy, args=(side, worker), daemon=True).start()
        while True:
            method, arguments, watched = receive(connection)
            reporter = ProgressReporter(connection)
            further = (reporter,) if watched else ()
            with contextlib.nullcontext() if isinstance(worker, RemoteError) else worker.at_work:
                value = _answer(worker, method, *arguments, *further)
            send(connection, Reply(value, reporter.unreported))


def _answer(worker: RemoteWorker | RemoteError, method: str, *arguments: Any) -> Any:
    """Return a worker's answer, or the error that kept it from making its clients."""
    return worker if isinstance(worker, RemoteError) else attempted(partial(getattr(worker, method), *arguments))


def _answer_while_busy(side: Connection, worker: RemoteWorker | RemoteError) -> None:
    """Answer, in a thread of its own, what is asked while the worker may be busy."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, arguments = receive(side)
            send(side, _answer(worker, method, *arguments))


def _forked_worker(ensemble: Ensemble, members: Sequence[int]) -> RemoteWorker:
    """Make the worker of a forked process, whose clients are there already."""
    return RemoteWorker(replace(ensemble, clients=[ensemble.clients[member] for member in members]), PlainTrainer())


def _spawned_worker(resolved: Any, payload: ClientPayload) -> RemoteWorker:
    """Make the worker of a fresh process from what was sent to it."""
    return RemoteWorker(payload.unpacked(resolved), PlainTrainer())


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """Block signals while a worker starts, so that Ctrl-C does not reach it before it ignores that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

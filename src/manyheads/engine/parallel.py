"""The parallel engine: clients dealt out to worker processes, one thread each, that keep them for the whole run.

Processes, not threads. On two cores, two threads made 1.36 to 1.49 times the client-steps/s of the plain loop on the
demo's model and two processes 1.67 to 1.80 times: much of a small step is Python, which one thread at a time runs. On
ResNet-18 both made about 1.8 (`benchmarks/engines.py`, docs/log.md). Threads would also need a replica each.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from manyheads.engine.base import Options, Progress
from manyheads.engine.crew import Crew
from manyheads.engine.plain import Plain
from manyheads.engine.remote import Failed, Luggage, Remote, RemoteCrew, attempted, checked_of, packed, unpacked
from manyheads.ensemble import Ensemble
from manyheads.errors import ConfigurationError, CrewLost

PROGRESS_SECONDS = 0.1  # between two messages about the steps that were taken
GOODBYE_SECONDS = 5.0  # that a worker may take to end
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Taken:
    """So many more client-steps were taken."""

    client_steps: int


@dataclass(frozen=True)
class Done:
    """An answer, and the client-steps that were not told yet."""

    value: Any
    client_steps: int


@dataclass(frozen=True)
class Worker:
    """A process, and the pipe to it."""

    process: BaseProcess | subprocess.Popen[bytes]
    connection: Connection

    def exit_code(self, seconds: float | None) -> int | None:
        """Once it has ended, for which it has so many seconds; minus the signal where it was killed."""
        if isinstance(self.process, BaseProcess):
            self.process.join(seconds)
            return self.process.exitcode
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class Parallel(Remote):
    """Worker processes on this machine."""

    def __init__(self, ensemble: Ensemble, options: Options, start: str | None = None) -> None:
        if torch.device(options.device).type != "cpu":
            raise ConfigurationError(
                f"--device {options.device}: the workers of --engine parallel train on the CPU; "
                "take --engine cuda, or --engine plain"
            )
        super().__init__(ensemble, number_of_workers(options.workers, len(ensemble.groups)), options)
        self._workers: list[Worker] = []
        self._busy: set[int] = set()
        atexit.register(self.close)  # before multiprocessing waits for its children
        start = start or start_method()
        try:
            for members in self._clients:
                if start == "fork":
                    self._fork(members)
                else:
                    self._spawn()
            if start == "spawn":  # all are on their way before the first one listens
                for crew, members in enumerate(self._clients):
                    self._tell(crew, (checked_of(ensemble), Luggage.of(ensemble, members, "cpu")))
        except BaseException:
            self.close()
            raise

    def _fork(self, members: Sequence[int]) -> None:
        """A worker that has all that is here: nothing is copied before it is changed."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [*(worker.connection for worker in self._workers), ours]
        make = partial(_inherited, self._ensemble, members)
        process = context.Process(target=_work, args=(theirs, inherited, make), daemon=True)
        with _without_signals(), warnings.catch_warnings():
            # That other threads may hold locks, of which a worker uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self._workers.append(Worker(process, ours))

    def _spawn(self) -> None:
        """A worker that begins with nothing. Unlike multiprocessing's, it does not import the program's main file."""
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-c", f"from manyheads.engine.parallel import begin; begin({theirs.fileno()})"],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # out of reach of Ctrl-C, also while it begins
        )
        theirs.close()
        self._workers.append(Worker(process, ours))

    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        for crew, given in arguments.items():
            self._busy.add(crew)
            self._tell(crew, (method, given, progress is not None))
        answers: dict[int, Any] = {}
        while len(answers) < len(arguments):
            waiting = {self._workers[crew].connection: crew for crew in arguments if crew not in answers}
            for connection in wait(list(waiting)):
                crew = waiting[connection]  # type: ignore[index]
                message = self._hear(crew)
                if isinstance(message, Done):
                    answers[crew] = message.value
                    self._busy.discard(crew)
                if progress is not None and message.client_steps:
                    progress(message.client_steps)
        return [self._good(crew, answers[crew]) for crew in arguments]

    def close(self) -> None:
        atexit.unregister(self.close)
        for worker in self._workers:
            worker.connection.close()
        for crew, worker in enumerate(self._workers):
            if crew in self._busy:  # somebody left in the middle of a window
                worker.process.kill()
            if worker.exit_code(GOODBYE_SECONDS) is None:
                worker.process.kill()
                worker.exit_code(None)
        self._workers = []

    def _good(self, crew: int, answer: Any) -> Any:
        if isinstance(answer, Failed):
            raise answer.error(f"the worker of {self._names(crew)}")
        return answer

    def _tell(self, crew: int, message: Any) -> None:
        try:
            send(self._workers[crew].connection, message)
        except OSError:
            raise self._lost(crew) from None

    def _hear(self, crew: int) -> Any:
        try:
            return receive(self._workers[crew].connection)
        except (EOFError, OSError):
            raise self._lost(crew) from None

    def _lost(self, crew: int) -> CrewLost:
        code = self._workers[crew].exit_code(GOODBYE_SECONDS)
        how = f"ended by itself (exit code {code})"
        if code is not None and code < 0:
            how = f"was killed ({signal.Signals(-code).name})"
        hint = "; where memory ran out, fewer --workers need less" if code == -signal.SIGKILL else ""
        return CrewLost(f"the worker of {self._names(crew)} {how}{hint}")


def number_of_workers(asked: int | None, nodes: int) -> int:
    """As many as were asked for; otherwise one for each core that this process may use."""
    if asked is None:
        return min(usable_cores(), nodes)
    if not 1 <= asked <= nodes:
        raise ConfigurationError(f"--workers {asked}: this experiment can use 1 to {nodes} (clients, or groups)")
    return asked


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_method() -> str:
    """Fork where that is sound: it shares the data and imports nothing twice.

    Where there is a GPU, PyTorch's backward pass has started threads that a fork would lose.
    """
    return "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


def send(connection: Connection, message: Any) -> None:
    """A message, and after it the contents of its large arrays as they lie in memory."""
    body, buffers = packed(message)
    contents = [buffer.raw() for buffer in buffers]
    connection.send_bytes(
        struct.pack(f"<{1 + len(contents)}Q", len(contents), *(raw.nbytes for raw in contents)) + body
    )
    for raw in contents:
        connection.send_bytes(raw)


def receive(connection: Connection) -> Any:
    header = connection.recv_bytes()
    (count,) = struct.unpack_from("<Q", header)
    buffers = [bytearray(size) for size in struct.unpack_from(f"<{count}Q", header, 8)]
    for buffer in buffers:
        connection.recv_bytes_into(buffer)
    return unpacked(header[8 * (1 + count) :], buffers)


def begin(descriptor: int) -> None:
    """The life of a worker that began with nothing."""
    _work(Connection(descriptor), [], None)


def _work(connection: Connection, inherited: Sequence[Connection], make: Callable[[], Crew] | None) -> None:
    """The life of a worker: it ends when nobody is at the other end any more."""
    for other in inherited:  # otherwise the pipes of the dead would stay open
        other.close()
    for number in SIGNALS:  # Ctrl-C reaches the whole group; what follows from it is for the parent to say
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        crew = attempted(make if make is not None else lambda: _settled(*receive(connection)))
        while True:
            method, arguments, watched = receive(connection)
            teller = Teller(connection)
            further = (teller,) if watched else ()
            failed = isinstance(crew, Failed)  # to make its clients: said to whoever asks
            value = crew if failed else attempted(partial(getattr(crew, method), *arguments, *further))
            send(connection, Done(value, teller.untold))


class Teller:
    """Tells the parent how many client-steps were taken, now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._told, self.untold = connection, time.perf_counter(), 0

    def __call__(self, client_steps: int) -> None:
        self.untold += client_steps
        now = time.perf_counter()
        if now - self._told >= PROGRESS_SECONDS:
            send(self._connection, Taken(self.untold))
            self._told, self.untold = now, 0


def _inherited(ensemble: Ensemble, members: Sequence[int]) -> Crew:
    """Of a fork."""
    return RemoteCrew(replace(ensemble, clients=[ensemble.clients[member] for member in members]), Plain())


def _settled(checked: Any, luggage: Luggage) -> Crew:
    """Of a process that began with nothing."""
    return RemoteCrew(luggage.unpacked(checked), Plain())


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """A worker that has just begun must not take a Ctrl-C for its own: it waits until it knows what to do with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

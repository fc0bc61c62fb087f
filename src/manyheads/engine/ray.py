"""The ray engine: each client (or group) is a Ray actor, on this machine or anywhere in a cluster.

What clients show each other goes from actor to actor through Ray's object store; this process passes on references.
Where a machine has fewer cores than actors, they share them.
"""

import contextlib
import importlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from manyheads.engine.base import Options, Progress
from manyheads.engine.parallel import usable_cores
from manyheads.engine.plain import Plain, enough_memory
from manyheads.engine.precision import computing_in
from manyheads.engine.remote import Failed, Luggage, Remote, RemoteCrew, attempted, checked_of, packed, unpacked
from manyheads.ensemble import Ensemble, device_named
from manyheads.errors import ConfigurationError, CrewLost
from manyheads.snapshot import Snapshot

PROGRESS_SECONDS = 0.5  # between two questions how many steps were taken
CONNECT_SECONDS = 12.0
PLACE_SECONDS = 300.0  # until every actor must have found its place and its clients
PROBE = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"


class RayEngine(Remote):
    """One actor for each node of the graph: the members of a group average often, and live together."""

    def __init__(self, ensemble: Ensemble, options: Options) -> None:
        super().__init__(ensemble, len(ensemble.groups), options)
        self._actors: list[Any] = []
        self._ours = connect(options.address)
        try:
            self._place(options)
        except BaseException:
            self.close()
            raise

    def _place(self, options: Options) -> None:
        """Start the actors, and give each its clients."""
        ray = _ray()
        kind = device_type(options.device)
        asks = shares(free_resources(), len(self._nodes), kind, options)
        actor: Any = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"watch": 1}, **asks)(Actor)
        shared = ray.put(_stored(checked_of(self._ensemble)))
        self._actors = [actor.remote() for _ in self._nodes]
        luggage = [Luggage.of(self._ensemble, members, kind) for members in self._clients]
        path = [entry or os.getcwd() for entry in sys.path]
        # The reference is wrapped: what it stands for may only be read once the path is known.
        how = path, [shared], options.precision
        settling = [a.settle.remote(*how, own) for a, own in zip(self._actors, luggage, strict=True)]
        _, missing = ray.wait(settling, num_returns=len(settling), timeout=PLACE_SECONDS)
        if missing:
            asked = ", ".join(f"{key} = {value}" for key, value in asks.items())
            raise ConfigurationError(
                f"--engine ray: {len(missing)} of {len(settling)} actors ({asked}) found no place within "
                f"{PLACE_SECONDS:.0f} s; is the cluster busy?"
            )
        self._machines = [self._good(crew, settled) for crew, settled in enumerate(settling)]
        cores = {machine["NodeID"]: int(machine["Resources"].get("CPU", 1)) for machine in ray.nodes()}
        # On a GPU, kernels of several actors fill each other's gaps.
        self._cores = Counter({key: max(1, n) if kind == "cpu" else len(self._nodes) for key, n in cores.items()})

    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        ray = _ray()
        watched, due = progress is not None, list(arguments)
        running, counts, answers = dict[Any, int](), _Counts(progress), dict[int, Any]()
        while running or due:
            for crew in self._may_start(due, list(running.values())) if watched else due:
                running[self._actors[crew].call.remote(method, arguments[crew], watched)] = crew
            due = [crew for crew in due if crew not in running.values()]
            done, _ = ray.wait(list(running), num_returns=1, timeout=PROGRESS_SECONDS if watched else None)
            for ref in done:
                crew = running.pop(ref)
                answers[crew], taken = self._good(crew, ref)
                counts.tell(crew, taken)
            if watched and not done:
                for crew in running.values():
                    asked = self._actors[crew].taken.options(concurrency_group="watch").remote()
                    counts.tell(crew, self._good(crew, asked))
        return [answers[crew] for crew in arguments]

    def _may_start(self, due: Sequence[int], running: Sequence[int]) -> list[int]:
        """Windows for which there is a core: all at once on too few cores are slower."""
        free = self._cores - Counter(self._machines[crew] for crew in running)
        chosen = []
        for crew in due:
            if free[self._machines[crew]] > 0:
                free[self._machines[crew]] -= 1
                chosen.append(crew)
        return chosen

    def close(self) -> None:
        ray = _ray()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # of a cluster that is gone
                ray.kill(actor)
        self._actors = []
        if self._ours:
            ray.shutdown()

    def _good(self, crew: int, ref: Any) -> Any:
        """What a reference stands for; an error where that is one, or where the actor is gone."""
        ray = _ray()
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(f"the Ray actor of {self._names(crew)}: {error}") from None
        except ray.exceptions.RayError as error:
            raise CrewLost(f"the Ray actor of {self._names(crew)} is gone: {_reason(error)}") from None
        found = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(found, Failed):
            raise found.error(f"the Ray actor of {self._names(crew)}")
        return answer


class _Counts:
    """The client-steps of each actor of which the observer was told."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._told = progress, dict[int, int]()

    def tell(self, crew: int, taken: int) -> None:
        more = taken - self._told.get(crew, 0)
        if self._progress is not None and more > 0:
            self._progress(more)
            self._told[crew] = taken


class Actor:
    """What runs in an actor's process: a crew, and a count of its steps that can be read while it trains."""

    def __init__(self) -> None:
        self._taken = 0

    def settle(self, path: Sequence[str], shared: Sequence[Any], precision: str, luggage: Luggage) -> Any:
        """Make its clients, and say on which machine. Code that an experiment names is found where the driver does."""
        ray = _ray()
        sys.path.extend(entry for entry in path if entry not in sys.path)
        # What lies in the object store must not be written to, which nobody does.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        torch.set_num_threads(1)

        def make() -> str:
            self._how = precision, device_named(luggage.device)
            with enough_memory():
                self._crew = RayCrew(luggage.unpacked(unpacked(*ray.get(shared[0]))), Plain())
            return str(ray.get_runtime_context().get_node_id())

        return attempted(make)

    def call(self, method: str, arguments: tuple[Any, ...], watched: bool) -> tuple[Any, int]:
        """The answer of the crew, and how many steps were taken for it."""
        further = (self._count,) if watched else ()
        answer = attempted(partial(self._do, method, *arguments, *further))
        taken, self._taken = self._taken, 0  # so that what is read before the next window begins is none
        return answer, taken

    def _do(self, method: str, *arguments: Any) -> Any:
        with enough_memory(), computing_in(*self._how):
            return getattr(self._crew, method)(*arguments)

    def taken(self) -> int:
        return self._taken

    def _count(self, client_steps: int) -> None:
        self._taken += client_steps


class RayCrew(RemoteCrew):
    """What it shows lies in the object store, once on each machine."""

    def send(self, snapshot: Snapshot) -> Any:
        ray = _ray()
        return ray.put(_stored(super().send(snapshot)))

    def receive(self, sent: Any) -> Snapshot:
        ray = _ray()
        try:
            body, arrays = ray.get(sent)
        except ray.exceptions.RayError as error:
            raise CrewLost(f"a snapshot was lost: {_reason(error)}") from None
        return super().receive(unpacked(body, arrays))


def _ray() -> Any:
    """Imported when it is needed: most people have no use for it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ConfigurationError("--engine ray: Ray is not installed; pip install 'manyheads[ray]'") from None


def _stored(value: Any) -> tuple[bytes, list[Any]]:
    """As Ray stores it so that its arrays can be used where they lie."""
    body, buffers = packed(value)
    return body, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]


def _reason(error: Exception) -> str:
    """The line of Ray's message that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "because" in line), lines[0])


def connect(address: str | None) -> bool:
    """To a cluster, or to one that is started on this machine; whether it has to be let go of."""
    ray = _ray()
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", there):
            raise ConfigurationError(f"--address {address}: this process uses {there} already; ray.shutdown() first")
        return False
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS")
    here = {} if address else {"num_cpus": usable_cores(), "include_dashboard": False}
    if address:
        _probe(address)
    with _same_handlers():
        try:
            ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **here)
        except Exception as error:
            raise ConfigurationError(f"--engine ray: Ray does not start: {_reason(error)}") from None
    return True


def _probe(address: str) -> None:
    """In another process, because Ray waits long for a cluster that is not there, and may end the process that asks."""
    if address.startswith("ray://"):
        raise ConfigurationError(f"--address {address}: give HOST:PORT (mostly port 6379), on a machine of the cluster")
    try:
        tried = subprocess.run(
            [sys.executable, "-c", PROBE, address], capture_output=True, text=True, timeout=CONNECT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"--address {address}: no Ray cluster answers within {CONNECT_SECONDS:.0f} s; "
            "is it started there (ray start --head), and is the port open?"
        ) from None
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if line.strip()] or ["no reason was given"]
        raise ConfigurationError(f"--address {address}: no Ray cluster can be used there: {said[-1]}")


def free_resources() -> dict[str, float]:
    """Of the cluster. What a lost run held may take a moment to come back."""
    ray = _ray()
    deadline = time.monotonic() + 5.0
    while True:
        free: dict[str, float] = ray.available_resources()
        if free.get("CPU", 0.0) >= 1.0 or time.monotonic() > deadline:
            return free
        time.sleep(0.1)


def shares(free: Mapping[str, float], actors: int, kind: str, options: Options) -> dict[str, float]:
    """What each actor asks for, so that all find a place at the same time."""
    cpus, gpus = int(free.get("CPU", 0.0)), int(free.get("GPU", 0.0))
    if cpus < 1:
        raise ConfigurationError("--engine ray: the cluster has no free CPU; wait until another job has ended")
    asks = {"num_cpus": share(cpus, actors)}
    if kind == "cuda":
        if gpus < 1:
            raise ConfigurationError(f"--device {options.device}: the cluster has no free GPU; take --device cpu")
        given = options.gpus_per_client
        if given is not None and given <= 0.0:
            raise ConfigurationError(f"--gpus-per-client {given}: must be above 0, such as 0.25")
        asks["num_gpus"] = share(gpus, actors) if given is None else given
    elif options.gpus_per_client is not None:
        raise ConfigurationError(f"--gpus-per-client {options.gpus_per_client}: needs --device cuda")
    return asks


def share(units: int, actors: int) -> float:
    """Of a unit: 1, or less where actors have to share. Every unit holds a whole number of actors."""
    together = math.ceil(actors / units)
    return 1.0 if together <= 1 else math.floor(10_000 / together) / 10_000


def device_type(name: str) -> str:
    """Whether that device is there is for the actors to find out."""
    return "cuda" if name.split(":")[0] == "cuda" else device_named(name).type


@contextlib.contextmanager
def _same_handlers() -> Iterator[None]:
    """Ray puts a handler for SIGTERM in place of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

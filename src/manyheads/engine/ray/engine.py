"""The ray engine: each client (or group) is a Ray actor, on this machine or anywhere in a cluster.

Answers go from actor to actor through Ray's object store; this process passes on references. On a machine with fewer
cores than actors, they share the cores.
"""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.engine.base import Progress
from manyheads.engine.failure import RemoteError
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.ray.actor import Actor, as_stored
from manyheads.engine.ray.cluster import connect, free_resources, import_ray, reason_of, shares
from manyheads.engine.remote import ClientPayload, RemoteEngine
from manyheads.errors import ConfigurationError, WorkerLost
from manyheads.setup.build import Ensemble

PROGRESS_SECONDS = 0.5  # between two looks at the steps that were taken
PLACE_SECONDS = 300.0  # within which every actor must have found a place and made its clients


class RayEngine(RemoteEngine):
    """An engine with one actor for each node of the graph: the members of a group average often, and live together."""

    def __init__(self, ensemble: Ensemble, options: ResolvedOptions) -> None:
        super().__init__(ensemble, len(ensemble.resolved.groups), options)
        self._actors: list[Any] = []
        self._ours = connect(options.address)
        try:
            self._place(options)
        except BaseException:
            self.close()
            raise

    def _place(self, options: ResolvedOptions) -> None:
        """Start the actors, and give each its clients."""
        ray = import_ray()
        kind = options.device.partition(":")[0]
        asks = shares(free_resources(), len(self._nodes), options)
        actor: Any = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"watch": 1}, **asks)(Actor)
        shared = ray.put(as_stored(self._ensemble.resolved))
        self._actors = [actor.remote() for _ in self._nodes]
        payloads = [ClientPayload.of(self._ensemble, members, kind) for members in self._clients]
        path = [entry or os.getcwd() for entry in sys.path]
        # The reference is wrapped in a list, because Ray must not read its value before the path is known.
        how = path, [shared], options.precision
        starting = [a.make_clients.remote(*how, own) for a, own in zip(self._actors, payloads, strict=True)]
        _, missing = ray.wait(starting, num_returns=len(starting), timeout=PLACE_SECONDS)
        if missing:
            asked = ", ".join(f"{key} = {value}" for key, value in asks.items())
            raise ConfigurationError(
                f"--engine ray: {len(missing)} of {len(starting)} actors ({asked}) found no place within "
                f"{PLACE_SECONDS:.0f} s; is the cluster busy?"
            )
        self._machines = [self._value_of(worker, started) for worker, started in enumerate(starting)]
        cores = {machine["NodeID"]: int(machine["Resources"].get("CPU", 1)) for machine in ray.nodes()}
        # On a GPU, kernels of several actors fill each other's gaps.
        self._cores = Counter({key: max(1, n) if kind == "cpu" else len(self._nodes) for key, n in cores.items()})

    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        ray = import_ray()
        watched, due = progress is not None, list(arguments)
        running, counts, answers = dict[Any, int](), _Counts(progress), dict[int, Any]()
        while running or due:
            for worker in self._may_start(due, list(running.values())) if watched else due:
                running[self._actors[worker].call.remote(method, arguments[worker], watched)] = worker
            due = [worker for worker in due if worker not in running.values()]
            done, _ = ray.wait(list(running), num_returns=1, timeout=PROGRESS_SECONDS if watched else None)
            for ref in done:
                worker = running.pop(ref)
                answers[worker], taken = self._value_of(worker, ref)
                counts.report(worker, taken)
            if watched and not done:
                for worker in running.values():
                    asked = self._actors[worker].taken.options(concurrency_group="watch").remote()
                    counts.report(worker, self._value_of(worker, asked))
        return [answers[worker] for worker in arguments]

    def ask_while_busy(self, method: str, *arguments: Any) -> list[Any]:
        watch = {"concurrency_group": "watch"}
        asked = [actor.call_while_busy.options(**watch).remote(method, arguments) for actor in self._actors]
        return [self._value_of(worker, ref) for worker, ref in enumerate(asked)]

    def _may_start(self, due: Sequence[int], running: Sequence[int]) -> list[int]:
        """Return the workers for which there is a core: all at once on too few cores would be slower."""
        free = self._cores - Counter(self._machines[worker] for worker in running)
        chosen = []
        for worker in due:
            if free[self._machines[worker]] > 0:
                free[self._machines[worker]] -= 1
                chosen.append(worker)
        return chosen

    def close(self) -> None:
        ray = import_ray()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # the cluster may be gone
                ray.kill(actor)
        self._actors = []
        if self._ours:
            ray.shutdown()

    def _value_of(self, worker: int, ref: Any) -> Any:
        """Return the value of a reference; raise if it is an error, or if the actor is gone."""
        ray = import_ray()
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(f"the Ray actor of {self._names(worker)}: {error}") from None
        except ray.exceptions.RayError as error:
            raise WorkerLost(f"the Ray actor of {self._names(worker)} is gone: {reason_of(error)}") from None
        found = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(found, RemoteError):
            raise found.error(f"the Ray actor of {self._names(worker)}")
        return answer


class _Counts:
    """The client-steps of each actor that were reported already."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._reported = progress, dict[int, int]()

    def report(self, worker: int, taken: int) -> None:
        more = taken - self._reported.get(worker, 0)
        if self._progress is not None and more > 0:
            self._progress(more)
            self._reported[worker] = taken

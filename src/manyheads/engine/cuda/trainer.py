"""The trainer of the cuda engine: the steps of all clients as one CUDA graph with several streams.

Before a stretch of steps, everything that they read is put on the device (student.py, teachers.py). Then the graph is
replayed once for each step, and the host only watches.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.algorithms.base import Algorithm
from manyheads.client.client import Client
from manyheads.client.plan import WindowPlan
from manyheads.data.batches import WindowRows
from manyheads.engine.base import Progress, Window, WindowLosses
from manyheads.engine.cuda.capture import CapturedStep, capture, draws_from_torch, why_not_captured
from manyheads.engine.cuda.pace import Pace
from manyheads.engine.cuda.student import Student
from manyheads.engine.cuda.teachers import Teachers
from manyheads.engine.plain import PlainTrainer
from manyheads.errors import TrainingError
from manyheads.memory import ADVICE

STREAMS = 8  # clients that train at the same time: more are not faster, and each needs its activations
STEPS_AT_ONCE = 128  # at most this many are loaded
LOADED_SHARE = 0.1  # the share of a GPU's memory for what is loaded


class CudaTrainer:
    """The trainer of the cuda engine. On a CPU it takes the same steps without a graph, for tests."""

    encodes = False  # what a message would hold is cut and rounded on the device

    def __init__(self, precision: str) -> None:
        self._low_dtype = torch.bfloat16 if precision == "bf16" else None
        self._students: list[Student] = []
        self._plain: list[Client] = []  # clients whose step cannot be captured
        self._graphs: dict[object, CapturedStep] = {}
        self._teachers: dict[
            object, Teachers
        ] = {}  # by students, number of targets, and whether each sample has its own
        self._streams: list[torch.cuda.Stream] = []
        self._reader = ThreadPoolExecutor(1, "images")
        self._memory_pool: Any = None
        self._passes: dict[int, int] = {}  # batches of each client in a step of the graph that is replayed
        self.notes: list[str] = []  # for the user, since they were last read
        self._noted: set[str] = set()
        self._data_seconds = 0.0
        self._pace = Pace()

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        if not (self._students or self._plain):
            self._prepare(clients, algorithm)
        found: dict[int, Tensor] = {}
        terms: tuple[str, ...] = ()
        self._data_seconds = 0.0
        if self._students:
            terms, found = self._train_students(algorithm, window, progress)
        if self._plain:  # after the others, because the first capture may add to these
            rest = PlainTrainer().train(self._plain, algorithm, window, progress)
            terms, self._data_seconds = rest.terms, self._data_seconds + rest.data_seconds
            found |= {client.index: own for client, own in zip(self._plain, rest.values, strict=True)}
        finite = torch.stack([torch.isfinite(client.state.values).all() for client in clients]).tolist()
        values = torch.stack([found[client.index] for client in clients])
        return WindowLosses(terms, values, tuple(finite), self._data_seconds)

    def _prepare(self, clients: Sequence[Client], algorithm: Algorithm) -> None:
        device = clients[0].state.values.device
        self._counter_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self._capacity = _capacity(clients, algorithm)
        for client in clients:
            if client.model.external and draws_from_torch(client):
                self._give_up(client, "it draws from torch's own generator")
            else:
                made = Student(client, algorithm, self._low_dtype, self._capacity, self._counter_1)
                self._students.append(made)

    def _give_up(self, client: Client, why: str) -> None:
        """Train a client as the plain engine does, and note that once for each architecture."""
        self._plain.append(client)
        problem = f"cannot be captured in a CUDA graph ({why}); it is trained step by step, as by the plain engine"
        text = f"{type(client.model.backbone).__name__} {problem}"
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)

    def _train_students(
        self, algorithm: Algorithm, window: Window, progress: Progress
    ) -> tuple[tuple[str, ...], dict[int, Tensor]]:
        plans = {s.client.index: algorithm.plan(s.client, window.start, window.stop) for s in self._students}
        phases = [plan.phase for plan in plans.values() if plan.phase is not None]
        found: dict[int, list[Tensor]] = {index: [] for index in plans}
        for start, stop in _stretches(window, phases, self._capacity):
            here = slice(start - window.start, stop - window.start)
            parts = {index: plan.at(here) for index, plan in plans.items()}
            load = partial(self._load, start, stop, parts)
            load()
            step = self._ready(load)
            self._counter_1.zero_()
            for student in self._students:  # before the steps, to be read while the device is busy with them
                ahead = min(stop + (stop - start), student.client.training.steps)
                student.fetch_ahead(stop, ahead, self._reader)
            self._replay(step, stop - start, progress)
            for student in self._students:
                student.keep_memory()
                student.counted(stop - start, self._passes.get(student.client.index, student.model.passes))
                found[student.client.index].append(student.losses[: stop - start].to("cpu", copy=True))
        terms = self._students[0].terms if self._students else ()
        kept = {student.client.index for student in self._students}
        return terms, {index: torch.cat(values) for index, values in found.items() if index in kept}

    def _load(self, start: int, stop: int, plans: Mapping[int, WindowPlan]) -> None:
        """Load everything that the steps of a stretch read."""
        begun = time.perf_counter()
        here = [plans[student.client.index] for student in self._students]
        rows = [student.load(start, stop, plan) for student, plan in zip(self._students, here, strict=True)]
        self._data_seconds += time.perf_counter() - begun
        self._ask_teachers(here, rows)

    def _replay(self, step: Callable[[], None], steps: int, progress: Progress) -> None:
        """Hand the steps to the device, and report its progress."""
        under_way: deque[tuple[torch.cuda.Event, int]] = deque()
        since, looked = 0, time.perf_counter()
        for done in range(1, steps + 1):
            step()
            since += 1
            if self._counter_1.is_cuda and (since >= self._pace.steps or done == steps):
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                under_way.append((event, since))
                since = 0
                while len(under_way) > (0 if done == steps else 1):
                    reached, taken = under_way.popleft()
                    reached.synchronize()
                    now = time.perf_counter()
                    self._pace.looked(now - looked, taken)
                    looked = now
                    progress(taken * len(self._students))
        if not self._counter_1.is_cuda:
            progress(steps * len(self._students))

    def _ask_teachers(self, plans: Sequence[WindowPlan], rows: Sequence[WindowRows | None]) -> None:
        """Ask the teachers of all students with the same number of targets (usually all students) together."""
        alike: dict[tuple[int, int | None], list[int]] = {}
        for number, plan in enumerate(plans):
            alike.setdefault((plan.targets_per_step, plan.samples_with_teachers), []).append(number)
        for (targets, samples), numbers in alike.items():
            students = [self._students[number] for number in numbers]
            asked = [own for number in numbers if (own := rows[number]) is not None]
            if not targets or not asked:
                for student in students:
                    student.answers = []
                continue
            teachers = self._teachers_of(students, targets, samples)
            pools = [student.client.pool.entries for student in students]
            teachers.ask(pools, [drawn for number in numbers if (drawn := plans[number].targets) is not None], asked)
            for place, student in enumerate(students):
                student.answers = teachers.answers_to(place)

    def _teachers_of(self, students: Sequence[Student], targets: int, samples: int | None) -> Teachers:
        key = tuple(student.client.index for student in students), targets, samples
        if key not in self._teachers:
            client = students[0].client
            assert client.public is not None
            dtype = client.state.values.dtype
            self._teachers[key] = Teachers(len(students), targets, self._capacity, client.public, dtype, samples)
        return self._teachers[key]

    def _ready(self, load_again: Callable[[], None]) -> Callable[[], None]:
        """Return a step of all students, ready to be taken: the graph for what is loaded, captured if it is new."""
        if not self._counter_1.is_cuda:
            return self._all
        key = tuple(student.key for student in self._students)
        if key not in self._graphs:
            if not self._graphs:
                self._try_each()
                self._choose_streams()
                load_again()
                key = tuple(student.key for student in self._students)
            if not self._students:
                return lambda: None
            with self._put_back():
                captured = capture(self._all, self._pool())
                passes = {student.client.index: student.model.passes for student in self._students}
                self._graphs[key] = CapturedStep(captured, passes)
        self._passes = self._graphs[key].passes
        return self._graphs[key].captured.replay

    def _pool(self) -> Any:
        """Return the memory that all graphs share: they are replayed in turn, and nothing in it outlives a step."""
        if self._memory_pool is None:
            self._memory_pool = torch.cuda.graph_pool_handle()
        return self._memory_pool

    def _try_each(self) -> None:
        """Try to capture each architecture alone: one that cannot be captured must not spoil the graph of all."""
        tried: dict[object, str | None] = {}
        with self._put_back():
            for student in list(self._students):
                kind = student.client.replica if student.client.model.external else None  # one for equal architectures
                if kind not in tried:
                    tried[kind] = why_not_captured(student.step, self._counter_1)
                problem = tried[kind]
                if problem is not None:
                    self._students.remove(student)
                    self._give_up(student.client, problem)

    def _choose_streams(self) -> None:
        """Make as many streams as memory allows: the clients of a stream use the same memory in turn."""
        if not self._students:
            return
        device = self._counter_1.device
        each = 1
        with self._put_back():
            for student in {id(student.client.replica): student for student in self._students}.values():
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)
                before = torch.cuda.memory_allocated(device)
                student.step()
                torch.cuda.synchronize(device)
                each = max(each, int(1.3 * (torch.cuda.max_memory_allocated(device) - before)))
        torch.cuda.empty_cache()
        clients = [student.client for student in self._students]
        coming = sum(c.pool.size * c.state.values.nbytes for c in clients)  # snapshots, if all were different
        held = {id(kept): kept for c in clients for entry in c.pool.entries if (kept := entry.source) is not None}
        coming -= sum(kept.values.nbytes for kept in held.values())
        free = torch.cuda.mem_get_info(device)[0] - max(0, coming)
        if free < each:
            raise TrainingError(
                f"out of GPU memory: {each / 2**30:.1f} GiB more are needed for the step of one client and "
                f"{max(0, coming) / 2**30:.1f} GiB for snapshots, {torch.cuda.mem_get_info(device)[0] / 2**30:.1f} GiB "
                f"are free; {ADVICE}"
            )
        number = min(STREAMS, len(self._students), free // each)
        self._streams = [torch.cuda.Stream(device) for _ in range(number)]  # type: ignore[no-untyped-call]

    def _all(self) -> None:
        """Take one step of every client, one after the other or in streams."""
        if not self._streams:
            for student in self._students:
                student.step()
        else:
            main = torch.cuda.current_stream()
            for stream in self._streams:
                stream.wait_stream(main)
            for number, student in enumerate(self._students):
                with torch.cuda.stream(self._streams[number % len(self._streams)]):
                    student.step()
            for stream in self._streams:
                main.wait_stream(stream)
        self._counter_1.add_(1)

    @contextlib.contextmanager
    def _put_back(self) -> Iterator[None]:
        """Undo the steps that are taken in here: trying out and capturing must not train anybody."""
        clients = [student.client for student in self._students]
        before = [
            (client.state.values.clone(), client.momentum.clone(), client.state.copy_integers()) for client in clients
        ]
        try:
            yield
        finally:
            for client, (values, momentum, integers) in zip(clients, before, strict=True):
                client.state.load(values, integers)
                client.momentum.copy_(momentum)
            for student in self._students:
                student.model.refresh()
                student.load_memory()
            self._counter_1.zero_()


def _stretches(window: Window, phases: Sequence[NDArray[Any]], capacity: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of steps that are loaded at once: within one phase of every client's plan."""
    start = window.start
    while start < window.stop:
        stop = min(window.stop, start + capacity)
        for own in phases:
            here = own[start - window.start : stop - window.start]
            other = (here != here[0]).nonzero()[0]
            stop = start + int(other[0]) if len(other) else stop
        yield start, stop
        start = stop


def _capacity(clients: Sequence[Client], algorithm: Algorithm) -> int:
    """Return how many steps may be loaded at once; teachers' answers and images from the host take most memory."""
    device = clients[0].state.values.device
    if device.type != "cuda":
        return STEPS_AT_ONCE
    each, targets = 0, algorithm.teachers_per_step
    for client in clients:
        (heads, classes), training = client.model.shape_HC, client.training
        width = max(client.model.embedding_width, *map(int, client.model.maps), 0)
        each += 4 * targets * training.public_batch_size * (heads * (classes + 1) + width)
        for samples, size in ((client.private, training.batch_size), (client.public, training.public_batch_size)):
            if samples is not None:
                height, across = samples.pixels.size
                each += 16 * size * (height + across) + (0 if samples.pixels.on_device else 4 * size * height * across)
    free = LOADED_SHARE * torch.cuda.mem_get_info(device)[1]
    return max(1, min(STEPS_AT_ONCE, int(free / max(1, each))))

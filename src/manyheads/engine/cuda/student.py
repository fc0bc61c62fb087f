"""A client's step without host work: everything that changes from step to step lies in arrays on the device.

A window is loaded once: samples, views, draws, learning rates and teachers' answers. A step then reads its row of each
array, at a counter that also lies on the device. Such a step can be captured in a CUDA graph (trainer.py).
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, Future

import numpy as np
import torch
from torch import Tensor

from manyheads.algorithms.base import Algorithm
from manyheads.client.client import Batch, Client, ForeignEmbeddings, learning_rate
from manyheads.client.plan import WindowPlan
from manyheads.data.batches import Rows, Samples, WindowRows
from manyheads.data.views import Grid
from manyheads.engine.cuda.captured_model import CapturedModel
from manyheads.engine.cuda.host_reads import NoPlan, NoStep
from manyheads.engine.cuda.teacher_answers import TeacherAnswers
from manyheads.models.dropout import dropouts
from manyheads.models.kernels.sgd import sgd
from manyheads.outputs import Outputs
from manyheads.seeds import generator


class Student:
    """A client, its window on the device, and its step."""

    def __init__(
        self, client: Client, algorithm: Algorithm, low_dtype: torch.dtype | None, capacity: int, counter_1: Tensor
    ) -> None:
        self.client, self._algorithm = client, algorithm
        self.answers: list[TeacherAnswers] = []  # of the targets, to this student
        self._capacity, self._counter_1 = capacity, counter_1
        self._kept: dict[tuple[str, torch.Size], Tensor] = {}  # every array that a graph may know, by name and shape
        self._held: dict[str, Tensor] = {}
        self._memory: dict[str, Tensor] = {}
        self._ahead: dict[str, tuple[Tensor, Future[Tensor]]] = {}
        self._streams: dict[str, tuple[int, int, WindowRows]] = {}  # drawn so far: from, until, the rows
        self.terms: tuple[str, ...] = ()
        self.phase = 0
        self.model = CapturedModel(client, low_dtype)
        state = client.state
        self._low_gradient = None if self.model.low is None else torch.zeros_like(self.model.low)
        homes = {low_dtype: self._low_gradient, state.values.dtype: state.gradient.zero_()}
        self._gradients = []  # where each parameter's gradient goes, in the order of parameters
        for slot, parameter in zip(state.layout[: len(self.model.parameters)], self.model.parameters, strict=True):
            home = homes[parameter.dtype]
            assert home is not None
            self._gradients.append(home.as_strided(slot.shape, slot.stride, slot.offset))
        self._dropouts = dropouts(self.model.module)
        self.losses = state.values.new_zeros(0)

    @property
    def key(self) -> tuple[object, ...]:
        """Return what the shape of the step depends on: a step with another key is another graph."""
        memory = tuple((name, tuple(of.shape)) for name, of in self._memory.items())
        tables = [
            of for own in self.answers for of in (own.probabilities_LBHC, own.known_LB, *own.embedding_LBE.values())
        ]
        return self.phase, memory, tuple(0 if table is None else table.data_ptr() for table in tables)

    def load(self, start: int, stop: int, plan: WindowPlan) -> WindowRows | None:
        """Load what steps start ... stop - 1 of one phase read, except teachers' answers; return the public rows."""
        self.phase = 0 if plan.phase is None else int(plan.phase[0])
        for name, array in plan.arrays.items():
            self._hold(f"plan {name}", torch.from_numpy(np.ascontiguousarray(array)))
        rates = [learning_rate(self.client.training, step) for step in range(start, stop)]
        self._hold("rate", torch.tensor(rates, dtype=self.client.state.values.dtype))
        if self._dropouts:
            layers, named = len(self._dropouts), (self.client.seed, "dropout", self.client.index)
            keys = [generator(*named, step).integers(2**63, size=layers) for step in range(start, stop)]
            self._hold("dropout", torch.from_numpy(np.stack(keys)))
        self._load_private(start, stop, plan)
        public = self._load_public(start, stop, plan)
        self.load_memory()
        self.model.refresh()
        return public

    def step(self) -> None:
        """Take the step at the counter: forward, backward, update. Nothing here waits for the device."""
        for number, layer in enumerate(self._dropouts):
            layer.begin_step(self.at("dropout")[number])
        with self._in_place():
            terms = self._algorithm.losses(self.client, StepBatch(self), NoStep())  # type: ignore[arg-type]
            dtype = self.client.state.values.dtype
            values = torch.stack([value.to(dtype) for value in terms.values()])
            found = torch.autograd.grad(values.sum(), self.model.parameters, allow_unused=True)
        with torch.no_grad():
            pairs = [(home, grad) for home, grad in zip(self._gradients, found, strict=True) if grad is not None]
            unused = [home for home, grad in zip(self._gradients, found, strict=True) if grad is None]
            if unused:  # steps of another phase may have left something there
                torch._foreach_zero_(unused)
            for dtype in dict.fromkeys(home.dtype for home, _ in pairs):  # one kernel each
                same = [(home, grad) for home, grad in pairs if home.dtype == dtype]
                torch._foreach_copy_([home for home, _ in same], [grad for _, grad in same])
            training, state = self.client.training, self.client.state
            sgd(
                state.parameters,
                self.client.momentum,
                state.gradient,
                self.model.low,
                self._low_gradient,
                self.at("rate"),
                weight_decay=training.weight_decay,
                momentum_factor=training.momentum,
            )
            if self.terms != tuple(terms):
                self.terms = tuple(terms)
                self.losses = state.values.new_zeros(self._capacity, len(self.terms))
            self.losses.index_copy_(0, self._counter_1, values.detach()[None])

    def counted(self, steps: int, passes: int) -> None:
        """Add to BatchNorm's counters of batches: afterwards, because nothing depends on them."""
        counters = [of for name, of in self.client.state.integers.items() if name.endswith("num_batches_tracked")]
        if counters:
            torch._foreach_add_(counters, steps * passes)

    def at(self, name: str) -> Tensor:
        """Return this step's row of an array that was loaded."""
        return self._row(self._held[name])

    def has(self, name: str) -> bool:
        return name in self._held

    def rows(self, name: str, samples: Samples) -> Rows:
        """Return this step's private or public rows, with their pixels."""
        grid = None
        if f"{name} rows" in self._held:
            parts = [self.at(f"{name} {part}") for part in GRID if f"{name} {part}" in self._held]
            grid = Grid(*parts)
        rows = WindowRows(self.at(f"{name} samples"), self.at(f"{name} numbers"), grid)
        if samples.pixels.on_device:
            return samples.read_rows(rows, self.model.dtype)
        return samples.rows_from(self.at(f"{name} images"), rows, self.model.dtype)

    def foreign(self) -> list[Outputs]:
        """Return the outputs of this step's targets, without their embeddings."""
        found = []
        for own in self.answers:
            assert own.probabilities_LBHC is not None
            measured = None if own.confidence_LBH is None else self._row(own.confidence_LBH)
            known = None if own.known_LB is None else self._row(own.known_LB)
            found.append(Outputs(self._row(own.probabilities_LBHC), None, measured, known))
        return found

    def foreign_embeddings(self) -> ForeignEmbeddings:
        """Return embeddings by target and width; if widths differ, all but the one of the target count nothing."""
        each = [(own, width) for own in self.answers for width in own.embedding_LBE]
        counts = [self._row(own.counts_L[width]) for own, width in each] if len(each) > len(self.answers) else []
        known = [None if own.known_LB is None else self._row(own.known_LB) for own, _ in each]
        given = [self._row(own.embedding_LBE[width]) for own, width in each]
        return ForeignEmbeddings(given, counts, known if any(own is not None for own in known) else [])

    def _row(self, of: Tensor) -> Tensor:
        return of.index_select(0, self._counter_1)[0]

    def _hold(self, name: str, tensor: Tensor) -> None:
        """Copy a tensor into an array that stays where it is, because a graph knows addresses."""
        key, device = (name, tensor.shape[1:]), self.client.state.values.device
        if key not in self._kept:
            self._kept[key] = torch.zeros(self._capacity, *tensor.shape[1:], dtype=tensor.dtype, device=device)
        self._held[name] = self._kept[key]
        self._held[name][: len(tensor)].copy_(tensor)

    def _hold_rows(self, name: str, rows: WindowRows, samples: Samples) -> None:
        if not samples.pixels.on_device:
            self._hold(f"{name} images", self._fetched(name, rows.samples_SB.cpu(), samples))
        self._hold(f"{name} samples", rows.samples_SB)
        self._hold(f"{name} numbers", rows.view_numbers_SB)
        if rows.grid is not None:
            for part in GRID:
                tensor = getattr(rows.grid, part)
                if tensor is not None:
                    self._hold(f"{name} {part}", tensor)

    def _load_private(self, start: int, stop: int, plan: WindowPlan) -> None:
        private, size = self.client.private, self.client.training.batch_size
        if plan.private_step is not None:  # not every step takes a private batch
            due = plan.private_step
            first = int(due[0])
            rows = self._drawn("private", private, first, int(due[-1]) + 1, size)
            order = torch.from_numpy(due - first).to(rows.samples_SB.device)
            rows = rows.map(lambda of: of.index_select(0, order))
        else:
            rows = self._drawn("private", private, start, stop, size)
        self._hold_rows("private", rows, private)

    def _load_public(self, start: int, stop: int, plan: WindowPlan) -> WindowRows | None:
        public = self.client.public
        if public is None:
            return None
        if plan.public is not None:
            view = np.zeros(stop - start, dtype=np.int64) if plan.view is None else plan.view
            rows = public.window_of(plan.public, view)
        else:
            rows = self._drawn("public", public, start, stop, self.client.training.public_batch_size)
        self._hold_rows("public", rows, public)
        return rows

    def _drawn(self, name: str, samples: Samples, start: int, stop: int, size: int) -> WindowRows:
        """Return the rows of steps start ... stop - 1.

        If a stretch is short, as between frequent exchanges, later steps are drawn with it: drawing takes many small
        kernels, however few the steps. Rows of images that are not on the device are drawn stretch by stretch, as
        these images are fetched.
        """
        first, last, rows = self._streams.get(name, (0, 0, None))
        if rows is None or start < first or last < stop:
            self._streams.pop(name, None)
            del rows  # before others are drawn, because there may not be room for both
            few = samples.pixels.on_device and 2 * (stop - start) <= self._capacity
            ahead = min(start + self._capacity, self.client.training.steps) if few else stop
            first, last = start, max(stop, ahead)
            rows = samples.window(first, last, size)
            if few:
                self._streams[name] = first, last, rows
        return rows.map(lambda of: of[start - first : stop - first])

    def fetch_ahead(self, start: int, stop: int, reader: Executor) -> None:
        """Begin to read images that are not on the device, for the steps that will probably come next."""
        training = self.client.training
        for name, samples, size in (
            ("private", self.client.private, training.batch_size),
            ("public", self.client.public, training.public_batch_size),
        ):
            if samples is not None and not samples.pixels.on_device and start < stop:
                chosen = torch.from_numpy(samples.drawn(start, stop, size)[0])
                self._ahead[name] = chosen, reader.submit(samples.pixels.fetch, chosen)

    def _fetched(self, name: str, samples_SB: Tensor, samples: Samples) -> Tensor:
        if name in self._ahead:
            chosen, images = self._ahead.pop(name)
            if torch.equal(chosen, samples_SB):
                return images.result()
        return samples.pixels.fetch(samples_SB)

    def load_memory(self) -> None:
        """Copy what the algorithm keeps of the client to fixed addresses."""
        self._memory = {}
        for name, tensor in self.client.memory.items():
            held = self._kept.setdefault((f"memory {name}", tensor.shape), torch.empty_like(tensor))
            self._memory[name] = held.copy_(tensor)

    def keep_memory(self) -> None:
        """Give the client what steps have changed in its memory."""
        for name, held in self._memory.items():
            self.client.memory[name].copy_(held)

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """Give the client its captured model, and its memory at fixed addresses, for as long as this lasts."""
        client = self.client
        before = client.model, client.memory
        client.model, client.memory = self.model, self._memory  # type: ignore[assignment]
        self.model.passes = 0
        try:
            yield
        finally:
            client.model, client.memory = before


GRID = ("rows", "columns", "down", "across")


class StepBatch(Batch):
    """A batch that is read on the device."""

    def __init__(self, student: Student) -> None:
        client = student.client

        def public() -> Rows:  # not a method: a batch that holds itself would keep its pixels
            assert client.public is not None, "this algorithm reads no public data"
            return student.rows("public", client.public)

        super().__init__(client, lambda: student.rows("private", client.private), public, NoPlan())
        self._student = student

    @property
    def phase(self) -> int:
        return self._student.phase

    def number(self, name: str) -> Tensor:
        return self._student.at(f"plan {name}").to(self._client.state.values.dtype)

    def array(self, name: str) -> Tensor | None:
        return self._student.at(f"plan {name}") if self._student.has(f"plan {name}") else None

    @property
    def foreign(self) -> list[Outputs]:
        return self._student.foreign()

    def foreign_embeddings(self) -> ForeignEmbeddings:
        return self._student.foreign_embeddings()

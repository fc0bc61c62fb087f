"""What snapshots say about all public rows of a stretch of steps, asked before the first of them.

A snapshot does not change, and which rows are due is known: so each is asked about many rows at a time, those of all
students together, and the students' steps only read. L: the lines of a table, one for each student and step, and one
more for what is asked only to fill up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.batches import Rows, Samples, WindowRows
from manyheads.models.norm import in_parts
from manyheads.outputs import Outputs
from manyheads.predictions import Catalogue, WindowSnapshot
from manyheads.snapshot import Replica, Snapshot, WeightsSnapshot

AT_ONCE = 2**21  # pixels that a snapshot is asked about: 2,048 images of 32 x 32
SMALLEST = 4  # steps: a call for fewer is filled up


@dataclass(eq=False)
class Said:
    """The answers to one target of every student: tables at addresses that stay."""

    lines: int
    dtype: torch.dtype
    probabilities_LBHC: Tensor | None = None
    confidence_LBH: Tensor | None = None
    embedding_LBE: dict[int, Tensor] = field(default_factory=dict)  # by width
    counts_L: dict[int, Tensor] = field(default_factory=dict)  # 1 where the embedding is of this width

    def of(self, student: int, capacity: int) -> "Said":
        """One student's lines."""

        def own(table: Tensor) -> Tensor:
            return table[student * capacity : (student + 1) * capacity]

        return Said(
            capacity,
            self.dtype,
            None if self.probabilities_LBHC is None else own(self.probabilities_LBHC),
            None if self.confidence_LBH is None else own(self.confidence_LBH),
            {width: own(table) for width, table in self.embedding_LBE.items()},
            {width: own(table) for width, table in self.counts_L.items()},
        )

    def make_room(self, outputs: Outputs, batch: int) -> None:
        """For answers like these."""

        def table(of: Tensor) -> Tensor:
            return torch.zeros(self.lines, batch, *of.shape[1:], dtype=self.dtype, device=of.device)

        if self.probabilities_LBHC is None:
            self.probabilities_LBHC = table(outputs.probabilities_BHC)
        if self.confidence_LBH is None and outputs.confidence_BH is not None:
            self.confidence_LBH = table(outputs.confidence_BH)
        width = 0 if outputs.embedding_BE is None else outputs.embedding_BE.shape[-1]
        if outputs.embedding_BE is not None and width not in self.embedding_LBE:
            self.embedding_LBE[width] = table(outputs.embedding_BE)
            self.counts_L[width] = self.embedding_LBE[width].new_zeros(self.lines)

    def put(self, outputs: Outputs, lines: Tensor) -> None:
        """Answers about the rows of some lines."""

        def put(of: Tensor, into: Tensor) -> None:
            into.index_copy_(0, lines, of.view(len(lines), -1, *of.shape[1:]).to(self.dtype))

        assert self.probabilities_LBHC is not None
        put(outputs.probabilities_BHC, self.probabilities_LBHC)
        if outputs.confidence_BH is not None and self.confidence_LBH is not None:
            put(outputs.confidence_BH, self.confidence_LBH)
        if outputs.embedding_BE is not None:
            width = outputs.embedding_BE.shape[-1]
            put(outputs.embedding_BE, self.embedding_LBE[width])
            self.counts_L[width].index_fill_(0, lines, 1.0)


class Teachers:
    """Asks the snapshots of some students' pools, who all have as many targets.

    A `catalogue` is given where students are told only the rows that they draw: answers are then cut and rounded as
    a message would be.
    """

    def __init__(
        self,
        students: int,
        targets: int,
        capacity: int,
        public: Samples,
        dtype: torch.dtype,
        catalogue: Catalogue | None = None,
    ) -> None:
        self._students, self._capacity, self._public, self._dtype = students, capacity, public, dtype
        self._heard = _as_it_is if catalogue is None else partial(catalogue.heard, dtype=dtype)
        self.said = [Said(students * capacity + 1, dtype) for _ in range(targets)]
        self._rows: WindowRows | None = None
        self._passes: dict[tuple[Replica, int, int, bool], Pass] = {}

    def of(self, student: int) -> list[Said]:
        """What all targets of a student say."""
        return [said.of(student, self._capacity) for said in self.said]

    @torch.no_grad()
    def ask(
        self,
        pools: Sequence[Sequence[Snapshot]],
        targets_KSJ: Sequence[NDArray[np.int64]],
        rows: Sequence[WindowRows],
    ) -> None:
        """For each student the entries of its pool, which of them are drawn at each step, and its public rows.

        In a model of others samples of a batch may know of each other: it is asked step by step.
        """
        together = self._gather(rows)
        batch = together.samples_SB.shape[1]
        at_once = max(SMALLEST, AT_ONCE // (self._public.pixels.size[0] * self._public.pixels.size[1] * batch))
        calls: list[tuple[Snapshot, int]] = []
        from_: list[list[int]] = []
        to: list[list[int]] = []
        for target, said in enumerate(self.said):
            for counts_L in said.counts_L.values():
                counts_L.zero_()
            for snapshot, lines in self._due(pools, targets_KSJ, target).items():
                alone = isinstance(snapshot, WeightsSnapshot) and snapshot.replica.model.foreign
                for part, size in (([line], 1) for line in lines) if alone else _in_powers(lines, at_once):
                    spare = size - len(part)
                    calls.append((snapshot, target))
                    from_.append([*part, *[part[-1]] * spare])
                    to.append([*part, *[said.lines - 1] * spare])
        # All at once: each copy to a device waits until it has done what it was given.
        every = torch.tensor([[*chain(*from_)], [*chain(*to)]]).to(together.samples_SB.device)
        for (snapshot, target), from_to in zip(calls, torch.split(every, [*map(len, from_)], 1), strict=True):
            self._ask(snapshot, together, from_to, target)

    def _due(
        self, pools: Sequence[Sequence[Snapshot]], targets_KSJ: Sequence[NDArray[np.int64]], target: int
    ) -> dict[Snapshot, list[int]]:
        """Which lines each snapshot has to answer; an owner that answers several students is asked for all of them."""
        due: dict[Snapshot, list[int]] = {}
        for student, drawn_SJ in enumerate(targets_KSJ):
            for step, entry in enumerate(drawn_SJ[:, target].tolist()):
                snapshot = pools[student][entry]
                if isinstance(snapshot, WindowSnapshot) and self._can_be_captured(snapshot.kept):
                    snapshot = snapshot.kept
                due.setdefault(snapshot, []).append(student * self._capacity + step)
        return due

    def _can_be_captured(self, snapshot: Snapshot) -> TypeGuard[WeightsSnapshot]:
        """A checkpoint of a model of ours, about images that lie beside it."""
        ours = isinstance(snapshot, WeightsSnapshot) and not snapshot.replica.model.foreign
        return ours and self._public.pixels.on_device

    def _ask(self, snapshot: Snapshot, rows: WindowRows, from_to: Tensor, target: int) -> None:
        said = self.said[target]
        shown = partial(_shown, self._public, rows, self._dtype)
        if self._can_be_captured(snapshot):
            key = snapshot.replica, from_to.shape[1], target, snapshot.density is not None
            if key not in self._passes:
                self._passes[key] = Pass(snapshot, from_to, said, shown, self._heard)
            self._passes[key](snapshot, from_to)
        else:
            from_, to = from_to
            outputs = snapshot.outputs(shown(from_))
            said.make_room(outputs, rows.samples_SB.shape[1])
            said.put(outputs, to)

    def _gather(self, rows: Sequence[WindowRows]) -> WindowRows:
        """The rows of all students as one window, at an address that stays."""
        if self._rows is None:
            lines = self._students * self._capacity
            self._rows = rows[0].each(lambda of: of.new_zeros(lines, *of.shape[1:]))
        for student, own in enumerate(rows):
            start = student * self._capacity
            for into, of in zip(_tensors(self._rows), _tensors(own), strict=True):
                into[start : start + len(of)].copy_(of)
        return self._rows


class Pass:
    """One pass of an architecture, for whichever weights and lines are due: on a GPU a CUDA graph.

    A density is asked after it: each snapshot has its own, and a graph knows one address.
    """

    def __init__(
        self,
        snapshot: WeightsSnapshot,
        from_to: Tensor,
        said: Said,
        shown: Callable[[Tensor], Rows],
        heard: Callable[[Outputs], Outputs],
    ) -> None:
        self._replica, self._said, self._shown, self._heard = snapshot.replica, said, shown, heard
        self._from_to, self._measures = from_to.clone(), snapshot.density is not None
        self._answer: tuple[Tensor, Tensor] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        if not from_to.is_cuda:
            return
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._forward()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._forward()

    def __call__(self, snapshot: WeightsSnapshot, from_to: Tensor) -> None:
        self._replica.state.values.copy_(snapshot.values)  # what counts batches does not matter here
        self._from_to.copy_(from_to)
        if self._graph is None:
            self._forward()
        else:
            self._graph.replay()
        if snapshot.density is not None and self._answer is not None:
            self._put(Outputs(*self._answer, snapshot.density.confidence(*self._answer)))

    def _forward(self) -> None:
        rows = self._shown(self._from_to[0])
        with in_parts(self._replica.model, ()):
            logits_BHC, embedding_BE = self._replica.model(rows.images)
        answer = logits_BHC.softmax(-1), embedding_BE
        if self._measures:
            self._answer = answer
        else:
            self._put(Outputs(*answer))

    def _put(self, outputs: Outputs) -> None:
        outputs = self._heard(outputs)
        self._said.make_room(outputs, len(outputs.probabilities_BHC) // self._from_to.shape[1])
        self._said.put(outputs, self._from_to[1])


def _as_it_is(said: Outputs) -> Outputs:
    return said


def _shown(public: Samples, rows: WindowRows, dtype: torch.dtype, lines: Tensor) -> Rows:
    """The rows of some lines, with their pixels."""
    return public.shown(rows.each(lambda of: of.index_select(0, lines).flatten(0, 1)), dtype)


def _tensors(rows: WindowRows) -> list[Tensor]:
    found: list[Tensor] = []

    def note(of: Tensor) -> Tensor:
        found.append(of)
        return of

    rows.each(note)
    return found


def _in_powers(lines: Sequence[int], most: int) -> Iterator[tuple[Sequence[int], int]]:
    """Parts, and the size that each is filled up to: there are few, because each is a graph of its own."""
    size = 1 << (most.bit_length() - 1)
    while lines:
        while size > SMALLEST and size > len(lines):
            size //= 2
        part, lines = lines[:size], lines[size:]
        yield part, size

"""Asking snapshots about all public rows of a stretch of steps, before the first step.

A snapshot does not change, and which rows are due is known. So each is asked about many rows at a time, those of all
students together, and the students' steps only read the answers. L: the lines of a table, one for each student and
step, and one more for what is asked only to fill up a call.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.batches import Rows, Samples, WindowRows
from manyheads.engine.cuda.captured_pass import CapturedPass
from manyheads.engine.cuda.teacher_answers import TeacherAnswers
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.weights import Replica

AT_ONCE = 2**21  # pixels in a call: 2,048 images of 32 x 32
SMALLEST = 4  # steps in a call: one for fewer is filled up
FEWEST_SAMPLES = 64  # in a call, if samples are asked about one by one
Lines = NDArray[np.int64]
Wanted = NDArray[np.bool_]


class Teachers:
    """The teachers of some students with the same number of targets: the snapshots in their pools.

    With the number of `samples` in a batch, each sample has its own teachers, and a line for its answers.
    """

    def __init__(
        self, students: int, targets: int, capacity: int, public: Samples, dtype: torch.dtype, samples: int | None
    ) -> None:
        self._students, self._capacity, self._public, self._dtype = students, capacity, public, dtype
        self._samples = samples
        lines = students * capacity * (samples or 1) + 1
        self.answers = [TeacherAnswers(lines, dtype) for _ in range(targets)]
        self._rows: WindowRows | None = None
        self._passes: dict[tuple[Replica, int, int, bool], CapturedPass] = {}

    def answers_to(self, student: int) -> list[TeacherAnswers]:
        """Return the answers of all targets to a student."""
        return [answers.to(student, self._capacity, self._samples) for answers in self.answers]

    @torch.no_grad()
    def ask(
        self,
        pools: Sequence[Sequence[Snapshot]],
        targets_KSJ: Sequence[NDArray[np.int64]],
        rows: Sequence[WindowRows],
    ) -> None:
        """Ask for each student's answers, given the entries of its pool, the draws of each step, and its public rows.

        In an external model the samples of a batch may interact, so it is asked step by step.
        """
        together = self._gather(rows)
        smallest = SMALLEST
        if self._samples is not None:
            together, smallest = together.map(lambda of: of.flatten(0, 1).unsqueeze(1)), FEWEST_SAMPLES
        batch = together.samples_SB.shape[1]
        at_once = max(smallest, AT_ONCE // (self._public.pixels.size[0] * self._public.pixels.size[1] * batch))
        calls: list[tuple[Snapshot, int]] = []
        from_: list[Lines] = []
        to: list[Lines] = []
        for target, answers in enumerate(self.answers):
            for counts_L in answers.counts_L.values():
                counts_L.zero_()
            if answers.known_LB is not None:
                answers.known_LB.fill_(True)
            for snapshot, lines in self._due(pools, targets_KSJ, target):
                alone = snapshot.source is not None and snapshot.source.replica.model.external
                parts = self._by_step(lines) if alone else _in_powers(lines, smallest, at_once)
                for asked, wanted in parts:
                    calls.append((snapshot, target))
                    from_.append(asked)
                    to.append(np.where(wanted, asked, answers.lines - 1))
        # All in one copy: each copy to a device waits until the device has done what it was given.
        every = torch.from_numpy(np.stack([np.concatenate(from_), np.concatenate(to)])).to(together.samples_SB.device)
        for (snapshot, target), from_to in zip(calls, torch.split(every, [*map(len, from_)], 1), strict=True):
            self._ask(snapshot, together, from_to, target)

    def _due(
        self, pools: Sequence[Sequence[Snapshot]], targets_KSJ: Sequence[NDArray[np.int64]], target: int
    ) -> list[tuple[Snapshot, Lines]]:
        """Return the lines that each snapshot has to answer; a checkpoint is asked once for all its students."""
        due: dict[object, tuple[Snapshot, list[Lines]]] = {}
        for student, drawn_SJ in enumerate(targets_KSJ):
            drawn = drawn_SJ[:, target].ravel()
            first = student * self._capacity * (self._samples or 1)
            for entry in dict.fromkeys(drawn.tolist()):
                snapshot = pools[student][entry]
                asked = due.setdefault(snapshot.source or snapshot, (snapshot, []))
                asked[1].append(first + np.flatnonzero(drawn == entry))
        return [(snapshot, np.concatenate(lines)) for snapshot, lines in due.values()]

    def _by_step(self, lines: Lines) -> Iterator[tuple[Lines, Wanted]]:
        """Yield the lines of each student's step, whole batches, and which of their answers are wanted."""
        samples = self._samples or 1
        for step in dict.fromkeys((lines // samples).tolist()):
            every = np.arange(step * samples, (step + 1) * samples)
            yield every, np.isin(every, lines)

    def _ask(self, snapshot: Snapshot, rows: WindowRows, from_to: Tensor, target: int) -> None:
        answers = self.answers[target]
        shown = partial(_shown, self._public, rows, self._dtype)
        source = snapshot.source
        # A checkpoint of one of our models can be asked in a graph about images on the same device.
        if source is not None and not source.replica.model.external and self._public.pixels.on_device:
            key = source.replica, from_to.shape[1], target, bool(source.fit_tensors)
            if key not in self._passes:
                as_sent = partial(snapshot.as_sent, dtype=self._dtype)
                self._passes[key] = CapturedPass(source, from_to, answers, shown, as_sent)
            self._passes[key](source, from_to)
        else:
            from_, to = from_to
            outputs = snapshot.outputs(shown(from_))
            answers.make_room(outputs, rows.samples_SB.shape[1])
            answers.put(outputs, to)

    def _gather(self, rows: Sequence[WindowRows]) -> WindowRows:
        """Gather the rows of all students as one window, at a fixed address."""
        if self._rows is None:
            lines = self._students * self._capacity
            self._rows = rows[0].map(lambda of: of.new_zeros(lines, *of.shape[1:]))
        for student, own in enumerate(rows):
            start = student * self._capacity
            for into, of in zip(_tensors(self._rows), _tensors(own), strict=True):
                into[start : start + len(of)].copy_(of)
        return self._rows


def _shown(public: Samples, rows: WindowRows, dtype: torch.dtype, lines: Tensor) -> Rows:
    """Return the rows of some lines, with their pixels."""
    return public.read_rows(rows.map(lambda of: of.index_select(0, lines).flatten(0, 1)), dtype)


def _tensors(rows: WindowRows) -> list[Tensor]:
    found: list[Tensor] = []

    def note(of: Tensor) -> Tensor:
        found.append(of)
        return of

    rows.map(note)
    return found


def _in_powers(lines: Lines, smallest: int, most: int) -> Iterator[tuple[Lines, Wanted]]:
    """Yield parts, filled up to few different sizes (each has a graph of its own), and which lines are no filling."""
    size = 1 << (most.bit_length() - 1)
    while len(lines):
        while size > smallest and size > len(lines):
            size //= 2
        part, lines = lines[:size], lines[size:]
        yield np.pad(part, (0, size - len(part)), mode="edge"), np.arange(size) < len(part)

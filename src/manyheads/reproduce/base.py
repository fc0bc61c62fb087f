"""What a reproduction is made of: cells, what is measured of them, what the paper printed, and its claims as checks.

A quantity is a number for each seed. A claim is judged seed by seed, because with the same seed two cells share their
data where the split is the same, and mostly first weights and batches, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean
from typing import Literal

from manyheads.experiment import Experiment
from manyheads.reproduce.results import Result, Stored, key_of
from manyheads.reproduce.scales import Scale, Values

Answer = Literal["yes", "no", "unclear"]
BySeed = dict[int, float]


@dataclass(frozen=True)
class Measure:
    """A number of a result; accuracies in percent."""

    label: str
    of: Callable[[Result], float | None]
    axis: str = "%"  # of a picture, which it shares with others that have the same


def private(head: int, label: str) -> Measure:
    return Measure(label, lambda result: _of_head(result.private_accuracy, head))


def shared(head: int, label: str) -> Measure:
    return Measure(label, lambda result: _of_head(result.shared_accuracy, head))


def _of_head(by_head: Sequence[float], head: int) -> float | None:
    return 100.0 * by_head[head] if -len(by_head) <= head < len(by_head) else None


PRIVATE, SHARED = private(0, "private"), shared(0, "shared, main head")
LAST = shared(-1, "shared, last head")
HEADS = tuple(shared(head, f"shared, head {head}") for head in range(1, 5))
PRIVATE_HEADS = tuple(private(head, f"private, head {head}") for head in range(1, 5))
BEST = Measure("shared, best head", lambda result: 100.0 * max(result.shared_accuracy))


@dataclass(frozen=True)
class Found:
    """The results of one reproduction at one scale: for each cell, by seed."""

    cells: Mapping[str, Mapping[int, Result]]
    doubt: float = 0.0  # points by which a difference usually differs from seed to seed

    def values(self, cell: str, measure: Measure) -> BySeed:
        measured = {seed: measure.of(result) for seed, result in self.cells.get(cell, {}).items()}
        return {seed: value for seed, value in measured.items() if value is not None}

    def part(self, only: Sequence[str], seeds: int | None) -> "Found":
        """Some of the cells, or all where none is named; of these so many seeds, or all."""
        return Found(
            {
                cell: {seed: result for seed, result in by_seed.items() if seeds is None or seed < seeds}
                for cell, by_seed in self.cells.items()
                if not only or cell in only
            },
            self.doubt,
        )


@dataclass(frozen=True)
class Quantity:
    """A number for each seed, with words for it."""

    of: Callable[[Found], BySeed]
    label: str
    cell: str | None = None  # of a measure of one cell
    measure: str | None = None
    form: str = "{:.1f}"

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self._with(other, lambda a, b: a - b, _difference(self, other), "{:+.1f}")

    def percent_of(self, other: "Quantity") -> "Quantity":
        label = f"({self.label}) / ({other.label})"
        return self._with(other, lambda a, b: 100.0 * a / b if b else math.nan, label, "{:.1f} %")

    def _with(self, other: "Quantity", combine: Callable[[float, float], float], label: str, form: str) -> "Quantity":
        def of(found: Found) -> BySeed:
            mine, theirs = self.of(found), other.of(found)
            return {seed: combine(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())}

        return Quantity(of, label, form=form)


def _difference(a: Quantity, b: Quantity) -> str:
    """What both have in common is said once."""
    if a.cell is not None and b.cell is not None and a.measure is not None and b.measure is not None:
        if a.cell == b.cell:
            return _apart(a.cell, a.measure, b.measure)
        if a.measure == b.measure:
            return _apart(a.measure, a.cell, b.cell)
    return " minus ".join(each.label if each.cell is not None else f"({each.label})" for each in (a, b))


def _apart(both: str, a: str, b: str) -> str:
    """Their first words in common, as of "s = 100, MHD" and "s = 100, separate", are said once, too."""
    mine, theirs = a.split(", "), b.split(", ")
    same = 0
    while same < min(len(mine), len(theirs)) - 1 and mine[same] == theirs[same]:
        same += 1
    return f"{', '.join([both, *mine[:same]])}: {', '.join(mine[same:])} minus {', '.join(theirs[same:])}"


def at(cell: str, measure: Measure) -> Quantity:
    return Quantity(lambda found: found.values(cell, measure), f"{cell}: {measure.label}", cell, measure.label)


def highest(label: str, *quantities: Quantity) -> Quantity:
    def of(found: Found) -> BySeed:
        every = [quantity.of(found) for quantity in quantities]
        return {seed: max(values[seed] for values in every) for seed in common_seeds(every)}

    return Quantity(of, label)


def common_seeds(every: Sequence[BySeed]) -> list[int]:
    """Those that all have."""
    return sorted(set.intersection(*map(set, every))) if every else []


@dataclass(frozen=True)
class Check:
    """Whether a quantity lies between two bounds; a bound itself does not count as between."""

    quantity: Quantity
    above: float = float("-inf")
    below: float = float("inf")

    def holds(self, value: float) -> bool:
        return self.above < value < self.below

    def too_close(self, by_seed: BySeed, doubt: float) -> bool:
        """Whether there is one seed only, and another might as well have said the opposite."""
        distances = [abs(value - bound) for value in by_seed.values() for bound in (self.above, self.below)]
        return len(by_seed) == 1 and min(distances) < doubt

    def share(self, by_seed: BySeed, doubt: float) -> float:
        """Of the seeds, for how many it holds."""
        return 0.5 if self.too_close(by_seed, doubt) else mean(map(self.holds, by_seed.values()))

    def words(self, by_seed: BySeed, doubt: float) -> str:
        """The quantity, its mean over seeds, for how many it holds, and where it must lie if that is not above 0."""
        value, held = mean(by_seed.values()), sum(map(self.holds, by_seed.values()))
        digits = next((digits for digits in (1, 2) if round(value, digits) not in (self.above, self.below)), 3)
        form = self.quantity.form.replace(".1f", f".{digits}f")
        value = value if round(value, digits) else 0.0  # not "-0.0"
        bounds = [f"{word} {bound:.4g}" for word, bound in (("above", self.above), ("below", self.below))]
        finite = [text for text, bound in zip(bounds, (self.above, self.below), strict=True) if math.isfinite(bound)]
        must = "" if finite == ["above 0"] else f"; must be {' and '.join(finite)}"
        close = ", too close" if self.too_close(by_seed, doubt) else ""
        return f"{self.quantity.label}: {form.format(value)} ({held}/{len(by_seed)}{close}{must})"


def above(a: Quantity, b: Quantity, by: float = 0.0) -> Check:
    return Check(a - b, above=by)


def near(a: Quantity, b: Quantity, within: float) -> Check:
    return Check(a - b, above=-within, below=within)


def rising(*quantities: Quantity) -> list[Check]:
    return [above(b, a) for a, b in pairwise(quantities)]


def falling(*quantities: Quantity) -> list[Check]:
    return [above(a, b) for a, b in pairwise(quantities)]


@dataclass(frozen=True)
class Verdict:
    """`yes` where all checks hold for every seed, `no` where one of them holds for none, otherwise `unclear`.

    A single seed that is too close to a bound is for neither.
    """

    answer: Answer
    parts: tuple[str, ...]  # of each check: in words
    seeds: int  # that the check with the fewest has


@dataclass(frozen=True)
class Claim:
    """A statement that can turn out to be wrong. `ours`: not the paper's, but one that this project made."""

    text: str
    checks: Sequence[Check]
    ours: bool = False
    changed: bool = False  # after results had been seen; the note says how and why
    scale: str | None = None  # where it is about numbers of one scale only

    def verdict(self, found: Found) -> Verdict | None:
        """Each check by the seeds that it has; None where a cell that it speaks of has not been run."""
        values = [check.quantity.of(found) for check in self.checks]
        if not values or not all(values):
            return None
        shares = [check.share(own, found.doubt) for check, own in zip(self.checks, values, strict=True)]
        answer: Answer = "no" if 0 in shares else "yes" if min(shares) == 1 else "unclear"
        parts = tuple(check.words(own, found.doubt) for check, own in zip(self.checks, values, strict=True))
        return Verdict(answer, parts, min(map(len, values)))


@dataclass(frozen=True)
class Beside:
    """A number that is of no cell alone, under the table."""

    quantity: Quantity
    text: str
    printed: str = ""  # what the paper has for it


Cells = dict[str, Experiment]
Printed = dict[tuple[str, str], float]  # (cell, label of a measure) -> what the paper printed


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of the paper, at any scale."""

    name: str
    title: str
    where: str  # in the paper
    cells: Callable[[Scale], Cells]
    measures: Sequence[Measure]
    claims: Sequence[Claim]
    printed: Printed = field(default_factory=dict)
    besides: Sequence[Beside] = ()
    seeds: int = 1  # at a scale that has several; elsewhere one, unless more are asked for
    scales: tuple[str, ...] = ("digits", "cifar100", "imagenet")  # where it makes sense
    figure: str = "points"  # how it is drawn: a name in figures.py

    def seeds_asked(self, scale: Scale) -> int:
        """How many are run unless told otherwise."""
        return self.seeds if scale.several_seeds else 1

    def seeds_complete(self, scale: Scale, found: Found) -> int:
        """How many make it complete: as many as are asked for, or as were run.

        Where tables ask for different numbers, a cell that another table has, too, may have more of them than is meant
        here; elsewhere whoever ran more for one cell meant all.
        """
        have = [len(by_seed) for by_seed in found.cells.values()]
        run = min(have, default=0) if scale.several_seeds else max(have, default=0)
        return max(self.seeds_asked(scale), run)

    def common_keys(self, scale: Scale) -> Values:
        """In which all of its cells alike are not what the cells of the scale are made from."""
        first, *others = (scale.other_keys(cell) for cell in self.cells(scale).values())
        return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}

    def claims_at(self, scale: Scale) -> list[Claim]:
        return [claim for claim in self.claims if claim.scale in (None, scale.name)]

    def found(self, scale: Scale, stored: Stored) -> Found:
        """Its results among all that are stored; none of its cells where it makes no sense."""
        cells = self.cells(scale) if scale.name in self.scales else {}
        by_key: dict[str, dict[int, Result]] = {}
        for (key, seed), result in sorted(stored.items()):
            by_key.setdefault(key, {})[seed] = result
        return Found({name: by_key.get(key_of(cell), {}) for name, cell in cells.items()}, scale.doubt)

"""The paper's claims as checks of stored results."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Literal

from manyheads.studies.paper.measures import BySeed, Measure, TableResults, common_seeds

Answer = Literal["yes", "no", "unclear"]


@dataclass(frozen=True)
class Quantity:
    """A number for each seed, and a label for it."""

    of: Callable[[TableResults], BySeed]
    label: str
    cell: str | None = None  # of a measure of one cell
    measure: str | None = None
    form: str = "{:.1f}"

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self._with(other, lambda a, b: a - b, _difference(self, other), "{:+.1f}")

    def percent_of(self, other: "Quantity") -> "Quantity":
        """Return this quantity in percent of another."""
        label = f"({self.label}) / ({other.label})"
        return self._with(other, lambda a, b: 100.0 * a / b if b else math.nan, label, "{:.1f} %")

    def _with(self, other: "Quantity", combine: Callable[[float, float], float], label: str, form: str) -> "Quantity":
        def of(found: TableResults) -> BySeed:
            mine, theirs = self.of(found), other.of(found)
            return {seed: combine(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())}

        return Quantity(of, label, form=form)


def _difference(a: Quantity, b: Quantity) -> str:
    """Label a difference, naming only once what both sides have in common."""
    if a.cell is not None and b.cell is not None and a.measure is not None and b.measure is not None:
        if a.cell == b.cell:
            return _difference_label(a.cell, a.measure, b.measure)
        if a.measure == b.measure:
            return _difference_label(a.measure, a.cell, b.cell)
    return " minus ".join(each.label if each.cell is not None else f"({each.label})" for each in (a, b))


def _difference_label(both: str, a: str, b: str) -> str:
    """Name common first words once: `s = 100: MHD minus separate`."""
    mine, theirs = a.split(", "), b.split(", ")
    same = 0
    while same < min(len(mine), len(theirs)) - 1 and mine[same] == theirs[same]:
        same += 1
    return f"{', '.join([both, *mine[:same]])}: {', '.join(mine[same:])} minus {', '.join(theirs[same:])}"


def at(cell: str, measure: Measure) -> Quantity:
    """Return a measure of a cell as a quantity."""
    return Quantity(lambda found: found.values(cell, measure), f"{cell}: {measure.label}", cell, measure.label)


def highest(label: str, *quantities: Quantity) -> Quantity:
    """Return the highest of several quantities, seed by seed."""

    def of(found: TableResults) -> BySeed:
        every = [quantity.of(found) for quantity in quantities]
        return {seed: max(values[seed] for values in every) for seed in common_seeds(every)}

    return Quantity(of, label)


@dataclass(frozen=True)
class Check:
    """A check that a quantity lies strictly between two bounds."""

    quantity: Quantity
    above: float = float("-inf")
    below: float = float("inf")

    def holds(self, value: float) -> bool:
        return self.above < value < self.below

    def too_close(self, by_seed: BySeed, doubt: float) -> bool:
        """Return whether there is one seed only, so close to a bound that another seed might say the opposite."""
        distances = [abs(value - bound) for value in by_seed.values() for bound in (self.above, self.below)]
        return len(by_seed) == 1 and min(distances) < doubt

    def share(self, by_seed: BySeed, doubt: float) -> float:
        """Return the share of seeds for which it holds."""
        return 0.5 if self.too_close(by_seed, doubt) else mean(map(self.holds, by_seed.values()))

    def words(self, by_seed: BySeed, doubt: float) -> str:
        """Describe the quantity, its mean over seeds, for how many it holds, and bounds other than "above 0"."""
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
    """Check that `a` is above `b`, by more than `by`."""
    return Check(a - b, above=by)


def near(a: Quantity, b: Quantity, within: float) -> Check:
    """Check that `a` and `b` differ by less than `within`."""
    return Check(a - b, above=-within, below=within)


def rising(*quantities: Quantity) -> list[Check]:
    """Check that each quantity is above the one before."""
    return [above(b, a) for a, b in pairwise(quantities)]


def falling(*quantities: Quantity) -> list[Check]:
    """Check that each quantity is below the one before."""
    return [above(a, b) for a, b in pairwise(quantities)]


@dataclass(frozen=True)
class Verdict:
    """The answer to a claim.

    `yes` if all checks hold for every seed, `no` if a check holds for none, otherwise `unclear`. A single seed that is
    too close to a bound decides nothing.
    """

    answer: Answer
    parts: tuple[str, ...]  # of each check: in words
    seeds: int  # that the check with the fewest has


@dataclass(frozen=True)
class Claim:
    """A statement that can turn out to be wrong: the paper's or, with `ours`, one of this project."""

    text: str
    checks: Sequence[Check]
    ours: bool = False
    changed: bool = False  # after results had been seen; the note says how and why
    scale: str | None = None  # where it is about numbers of one scale only

    def verdict(self, found: TableResults) -> Verdict | None:
        """Judge each check by the seeds that it has; return None if one of its cells has not been run."""
        values = [check.quantity.of(found) for check in self.checks]
        if not values or not all(values):
            return None
        shares = [check.share(own, found.doubt) for check, own in zip(self.checks, values, strict=True)]
        answer: Answer = "no" if 0 in shares else "yes" if min(shares) == 1 else "unclear"
        parts = tuple(check.words(own, found.doubt) for check, own in zip(self.checks, values, strict=True))
        return Verdict(answer, parts, min(map(len, values)))

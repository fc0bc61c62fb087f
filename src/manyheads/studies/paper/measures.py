"""Measures: what a table shows of each cell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from manyheads.studies.paper.results import CellResult

BySeed = dict[int, float]


@dataclass(frozen=True)
class Measure:
    """A number of a result; accuracies in percent."""

    label: str
    of: Callable[[CellResult], float | None]
    axis: str = "%"  # of a picture, which it shares with others that have the same


def private(head: int, label: str) -> Measure:
    """Return the private accuracy of a head as a measure."""
    return Measure(label, lambda result: _of_head(result.private_accuracy, head))


def shared(head: int, label: str) -> Measure:
    """Return the shared accuracy of a head as a measure."""
    return Measure(label, lambda result: _of_head(result.shared_accuracy, head))


def _of_head(by_head: Sequence[float], head: int) -> float | None:
    return 100.0 * by_head[head] if -len(by_head) <= head < len(by_head) else None


PRIVATE, SHARED = private(0, "private"), shared(0, "shared, main head")
LAST = shared(-1, "shared, last head")
HEADS = tuple(shared(head, f"shared, head {head}") for head in range(1, 5))
PRIVATE_HEADS = tuple(private(head, f"private, head {head}") for head in range(1, 5))
BEST = Measure("shared, best head", lambda result: 100.0 * max(result.shared_accuracy))


@dataclass(frozen=True)
class TableResults:
    """The results of one reproduction at one scale: for each cell, by seed."""

    cells: Mapping[str, Mapping[int, CellResult]]
    doubt: float = 0.0  # points by which a difference usually differs from seed to seed

    def values(self, cell: str, measure: Measure) -> BySeed:
        """Return a measure of a cell, by seed."""
        measured = {seed: measure.of(result) for seed, result in self.cells.get(cell, {}).items()}
        return {seed: value for seed, value in measured.items() if value is not None}

    def select(self, only: Sequence[str], seeds: int | None) -> "TableResults":
        """Return the named cells (all if none is named) with the first `seeds` seeds (all if None)."""
        return TableResults(
            {
                cell: {seed: result for seed, result in by_seed.items() if seeds is None or seed < seeds}
                for cell, by_seed in self.cells.items()
                if not only or cell in only
            },
            self.doubt,
        )


def common_seeds(every: Sequence[BySeed]) -> list[int]:
    """Return the seeds that all have."""
    return sorted(set.intersection(*map(set, every))) if every else []

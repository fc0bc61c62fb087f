"""A reproduction of a table or figure of the paper: cells, measures, the paper's numbers, claims."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.claims import Claim, Quantity
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.measures import Measure, TableResults
from manyheads.studies.paper.results import CellResult, Stored
from manyheads.studies.paper.scales import Scale, Values


@dataclass(frozen=True)
class DerivedNumber:
    """A number computed from several cells, shown below the table."""

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
    derived: Sequence[DerivedNumber] = ()
    seeds: int = 1  # at a scale that has several; elsewhere one, unless more are asked for
    scales: tuple[str, ...] = ("digits", "cifar100", "imagenet")  # where it makes sense
    figure: str = "points"  # how it is drawn: a name in figures.py

    def seeds_asked(self, scale: Scale) -> int:
        """Return how many seeds are run by default."""
        return self.seeds if scale.several_seeds else 1

    def seeds_complete(self, scale: Scale, found: TableResults) -> int:
        """Return how many seeds make it complete: as many as are asked for, or as were run.

        At a scale where tables ask for different numbers of seeds, a cell that another table shares may have more of
        them than this table asks for. At the other scales, whoever ran more seeds of one cell meant all cells.
        """
        have = [len(by_seed) for by_seed in found.cells.values()]
        run = min(have, default=0) if scale.several_seeds else max(have, default=0)
        return max(self.seeds_asked(scale), run)

    def common_keys(self, scale: Scale) -> Values:
        """Return the keys in which all of its cells differ from the experiment of the scale in the same way."""
        first, *others = (scale.differing_keys(cell) for cell in self.cells(scale).values())
        return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}

    def claims_at(self, scale: Scale) -> list[Claim]:
        return [claim for claim in self.claims if claim.scale in (None, scale.name)]

    def results(self, scale: Scale, stored: Stored) -> TableResults:
        """Pick its results from all that are stored; no cells if it makes no sense at this scale."""
        cells = self.cells(scale) if scale.name in self.scales else {}
        by_key: dict[str, dict[int, CellResult]] = {}
        for (key, seed), result in sorted(stored.items()):
            by_key.setdefault(key, {})[seed] = result
        return TableResults({name: by_key.get(cell_key(cell), {}) for name, cell in cells.items()}, scale.doubt)

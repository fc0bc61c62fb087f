"""A table or figure of the paper: cells, measures, what the paper printed, claims."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.claims import Claim, Quantity
from manyheads.studies.paper.keys import key_of
from manyheads.studies.paper.measures import Measure, TableResults
from manyheads.studies.paper.results import CellResult, Stored
from manyheads.studies.paper.scales import Scale, Values


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

    def seeds_complete(self, scale: Scale, found: TableResults) -> int:
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

    def found(self, scale: Scale, stored: Stored) -> TableResults:
        """Its results among all that are stored; none of its cells where it makes no sense."""
        cells = self.cells(scale) if scale.name in self.scales else {}
        by_key: dict[str, dict[int, CellResult]] = {}
        for (key, seed), result in sorted(stored.items()):
            by_key.setdefault(key, {})[seed] = result
        return TableResults({name: by_key.get(key_of(cell), {}) for name, cell in cells.items()}, scale.doubt)

"""The gauntlet's table: what each cell gains, which ones fail, and what of the targets is met."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from common import markdown_table
from gauntlet_cells import WAYS, Cell
from gauntlet_results import Results, accuracy
from manyheads.report.beside import A_POINT, Change
from manyheads.report.text import TASKS

ALONE = ("separate", "balanced")  # training alone, which MHD must not fall behind
AHEAD, RAMP_WORTH = 0.75, 0.5  # the share of cells ahead of FedMD; points that the ramp may be worth
Accuracies = Mapping[str, Mapping[int, float]]  # by way and seed


@dataclass(frozen=True)
class Row:
    """The accuracies of a cell, by task, way and seed."""

    cell: Cell
    tasks: Mapping[str, Accuracies] = field(repr=False)

    def change(self, task: str, alone: str, together: str = "mhd") -> Change | None:
        """Return what one way gains over another, with the seeds that both have; None if there are none."""
        before, after = (self.tasks[task].get(way, {}) for way in (alone, together))
        seeds = sorted(before.keys() & after.keys())
        return Change(tuple(before[s] for s in seeds), tuple(after[s] for s in seeds)) if seeds else None

    @property
    def seeds(self) -> int:
        """The seeds that MHD has."""
        return len(self.tasks["shared"].get("mhd", {}))

    @property
    def verdict(self) -> str:
        """Whether MHD by default is as good as training alone: ok or FAILS; empty if something is missing."""
        changes = [self.change(task, alone) for task in TASKS for alone in ALONE]
        if any(change is None for change in changes):
            return ""
        return "FAILS" if any(loses(change) for change in changes if change is not None) else "ok"

    @property
    def worst(self) -> tuple[float, str]:
        """Return the smallest gain over training alone in points, and in words."""
        found = [
            (change.points, f"{task} accuracy, {change.points:+.1f} points against {WAYS[alone]}")
            for task in TASKS
            for alone in ALONE
            if (change := self.change(task, alone)) is not None
        ]
        return min(found, default=(0.0, ""))

    def means(self, way: str) -> str:
        """Return private and shared accuracy of a way in percent; one model has no private task."""
        found = [self.tasks[task].get(way) for task in TASKS]
        if not all(found):
            return ""
        private, shared = (f"{100 * mean(by_seed.values()):.1f}" for by_seed in found if by_seed)
        if way == "fedavg" and self.cell.graph != "complete":
            shared += " (gossip)"
        return shared if way == "supervised" else f"{private} / {shared}"

    def gains(self, alone: str) -> str:
        changes = [self.change(task, alone) for task in TASKS]
        return " / ".join("" if c is None else f"{c.points:+.1f} ± {c.error:.1f}" for c in changes)


def loses(change: Change) -> bool:
    """Return whether a mean gain is below minus one point, and below minus two standard errors over seeds.

    >>> loses(Change(alone=(0.9, 0.9), together=(0.88, 0.88))), loses(Change(alone=(0.9, 0.9), together=(0.89, 0.89)))
    (True, False)
    """
    return change.points < -max(A_POINT, round(change.error, 1))


def rows_of(cells: Sequence[Cell], results: Results, part: str) -> list[Row]:
    """Return a row for each cell that has results."""
    rows = []
    for cell in cells:
        own = {(way, seed): result for (name, way, seed), result in results.items() if name == cell.name}
        tasks: dict[str, dict[str, dict[int, float]]] = {task: {} for task in TASKS}
        for task in TASKS:
            for (way, seed), result in sorted(own.items()):
                tasks[task].setdefault(way, {})[seed] = accuracy(result, task, part)
        if own:
            rows.append(Row(cell, tasks))
    return rows


def table(rows: Sequence[Row], ways: Sequence[str]) -> str:
    """Return a row for each cell: accuracies of all ways, and what MHD by default gains over training alone."""
    head = ["cell", *(WAYS[way] for way in ways), *(f"gain on {WAYS[alone]}" for alone in ALONE), "seeds", "verdict"]
    lines = [
        [
            f"**{row.cell.name}**: {row.cell}",
            *map(row.means, ways),
            *map(row.gains, ALONE),
            str(row.seeds),
            row.verdict,
        ]
        for row in rows
    ]
    return markdown_table(head, lines)


def summary_lines(rows: Sequence[Row]) -> str:
    """Return a list: failing cells, the worst one, and what of the targets is met."""
    lines = _against_alone([row for row in rows if row.verdict])
    lines += [line for task in reversed(TASKS) if (line := _against_fedmd(rows, task))]
    if line := _against_ramp(rows):
        lines.append(line)
    return "\n".join(f"- {line}" for line in lines)


def _against_alone(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    failing = [row.cell.name for row in rows if row.verdict == "FAILS"]
    worst = min(rows, key=lambda row: row.worst[0])
    named = f" ({', '.join(failing)})" if failing else ""
    return [
        f"Behind training alone, balanced or not: {len(failing)} of {len(rows)} cells{named}: {_met(not failing)}.",
        f"The worst cell is {worst.cell.name} ({worst.cell}): {worst.worst[1]}.",
    ]


def _against_fedmd(rows: Sequence[Row], task: str) -> str:
    unequal = [row for row in rows if row.cell.unequal]
    changes = [change for row in unequal if (change := row.change(task, "fedmd")) is not None]
    if not changes:
        return ""
    ahead = sum(mean(change.gains) > 0.0 for change in changes)
    return (
        f"Where labels are unequal, MHD is ahead of FedMD in {task} accuracy in {ahead} of {len(changes)} cells "
        f"(target: three of four): {_met(ahead >= AHEAD * len(changes))}."
    )


def _against_ramp(rows: Sequence[Row]) -> str:
    by_task = {task: [c for row in rows if (c := row.change(task, "mhd", "no-ramp")) is not None] for task in TASKS}
    if not by_task["shared"]:
        return ""
    gains = {task: mean(mean(change.gains) for change in changes) for task, changes in by_task.items()}
    said = ", ".join(f"{task} {gain:+.2f}" for task, gain in gains.items())
    verdict = "is needed" if min(gains.values()) < -RAMP_WORTH else "is not needed"
    return f"Without its ramp, in the mean over cells, points: {said}. It {verdict} (needed: more than half is lost)."


def _met(met: bool) -> str:
    return "met" if met else "MISSED"

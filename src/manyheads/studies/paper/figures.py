"""The paper's figures, drawn from stored results; a table of the paper becomes points beside its own numbers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from manyheads.algorithms import make_algorithm
from manyheads.algorithms.base import Sends
from manyheads.config.experiment import AlgorithmConfig
from manyheads.report.frontier_figure import frontier_figure
from manyheads.studies.paper.measures import HEADS, LAST, PRIVATE, PRIVATE_HEADS, SHARED, Measure, TableResults
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import CellResult
from manyheads.studies.paper.tables.common import SKEWS
from manyheads.studies.paper.tables.communication import MEGABYTES
from manyheads.studies.paper.tables.heads import heads_cell
from manyheads.studies.paper.tables.regularization import NU_AUX, NU_EMB, grid_cell
from manyheads.studies.paper.tables.topologies import PROBE, on_hop

Point = tuple[float, list[float]]  # a place, and the values of all seeds there
Values = Callable[[str, Measure], list[float]]  # of a cell and a measure


def points_figure(reproduction: Reproduction, found: TableResults) -> Figure:
    """Draw every measure of every cell: ours filled, each seed a small dot, the paper's number hollow."""
    cells = [cell for cell, by_seed in found.cells.items() if by_seed]
    measures = [m for m in reproduction.measures if any(found.values(cell, m) for cell in cells)]
    axis_names = list(dict.fromkeys(measure.axis for measure in measures)) or ["%"]
    size = (8.0 + 2.0 * (len(axis_names) - 1), 1.0 + 0.36 * max(len(cells), 4))
    figure = Figure(figsize=size, layout="constrained")
    ratios = [3.0] + [1.5] * (len(axis_names) - 1)
    panels = figure.subplots(1, len(axis_names), sharey=True, width_ratios=ratios, squeeze=False)[0]
    of_axis = dict(zip(axis_names, panels, strict=True))
    for number, measure in enumerate(measures):
        shift = 0.5 * (number / (len(measures) - 1) - 0.5) if len(measures) > 1 else 0.0
        axes, colour = of_axis[measure.axis], f"C{number % 10}"
        for row, cell in enumerate(cells):
            _point(axes, row + shift, list(found.values(cell, measure).values()), colour)
            printed = reproduction.printed.get((cell, measure.label))
            if printed is not None:
                axes.plot(printed, row + shift, marker="o", fillstyle="none", color=colour, markersize=6, linestyle="")
    panels[0].set_yticks(range(len(cells)), cells, fontsize=8)
    panels[0].invert_yaxis()  # shared: the first cell is on top, as in the table
    for name, axes in of_axis.items():
        axes.set_xlabel(name)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color="0.92")
    _legend(panels[-1], {measure.label: f"C{number % 10}" for number, measure in enumerate(measures)}, reproduction)
    return figure


def _point(axes: Axes, row: float, values: Sequence[float], colour: str) -> None:
    if values:
        axes.plot(mean(values), row, marker="o", color=colour, markersize=5, linestyle="")
    if len(values) > 1:
        axes.plot(values, [row] * len(values), marker=".", color=colour, markersize=4, linestyle="", alpha=0.5)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else math.nan  # of one seed nothing is drawn


def _legend(axes: Axes, colours: Mapping[str, str], reproduction: Reproduction) -> None:
    lines = [Line2D([], [], marker="o", linestyle="", color=colour, label=label) for label, colour in colours.items()]
    if reproduction.printed:
        lines.append(Line2D([], [], marker="o", fillstyle="none", linestyle="", color="black", label="the paper"))
    axes.legend(handles=lines, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def regularization_figure(reproduction: Reproduction, found: TableResults) -> Figure:
    """Draw Figure 3: accuracy over nu_emb at both skews; a colour for each nu_aux, auxiliary heads dashed."""
    figure = Figure(figsize=(9.0, 12.0), layout="constrained")
    tasks = (("private", PRIVATE, PRIVATE_HEADS[0]), ("shared", SHARED, HEADS[0]))
    rows = [(skew, *task) for skew in SKEWS for task in tasks]
    panels = figure.subplots(len(rows), 2)
    for column, (whose, values) in enumerate(_ours_and_the_papers(reproduction, found)):
        for axes, (skew, task, main, auxiliary) in zip(panels[:, column], rows, strict=True):
            for number, nu_aux in enumerate(NU_AUX):
                cells = [grid_cell(skew, nu_emb, nu_aux) for nu_emb in NU_EMB]
                label = f"$\\nu_{{aux}}$ = {nu_aux}"
                _draw(axes, _known(values, NU_EMB, [(cell, main) for cell in cells]), f"C{number}", "-", label)
                if nu_aux:  # without its loss an auxiliary head says nothing
                    known = _known(values, NU_EMB, [(cell, auxiliary) for cell in cells])
                    _draw(axes, known, f"C{number}", "--", None)
            axes.set_title(f"s = {skew}, {task} accuracy, {whose}", fontsize=10)
            axes.set_xlabel("$\\nu_{emb}$")
            axes.set_ylabel("%")
    _legend_of_all(figure, panels.flat, "main solid,\nauxiliary dashed")
    return figure


def heads_figure(reproduction: Reproduction, found: TableResults) -> Figure:
    """Draw Figure 4: accuracy of each head, a colour per number of heads; shared solid, private dot-dashed."""
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    panels = figure.subplots(len(SKEWS), 2)
    for column, (whose, values) in enumerate(_ours_and_the_papers(reproduction, found)):
        for axes, skew in zip(panels[:, column], SKEWS, strict=True):
            for heads in range(1, 5):
                cell, colour = heads_cell(skew, heads), f"C{heads - 1}"
                for measures, style in (((SHARED, *HEADS), "-"), ((PRIVATE, *PRIVATE_HEADS), "-.")):
                    known = _known(values, range(5), [(cell, measure) for measure in measures])
                    label = f"{heads} head{'s' if heads > 1 else ''}" if style == "-" else None
                    _draw(axes, known, colour, style, label)
            axes.set_xticks(range(5), ["main", "1", "2", "3", "4"])
            axes.set_xlabel("head")
            axes.set_ylabel("%")
            axes.set_title(f"s = {skew}, {whose}", fontsize=10)
    _legend_of_all(figure, panels.flat, "shared solid,\nprivate dot-dashed")
    return figure


def _ours_and_the_papers(reproduction: Reproduction, found: TableResults) -> list[tuple[str, Values]]:
    """Return the two sources of values, for a column of panels each."""

    def printed(cell: str, measure: Measure) -> list[float]:
        at = cell, measure.label
        return [reproduction.printed[at]] if at in reproduction.printed else []

    return [("here", lambda cell, measure: list(found.values(cell, measure).values())), ("the paper", printed)]


def _legend_of_all(figure: Figure, panels: Iterable[Axes], title: str) -> None:
    """Add a legend of everything that any panel shows: before all cells are run, panels differ."""
    drawn = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    by_label = {label: handle for handle, label in sorted(drawn, key=lambda pair: (len(pair[1]), pair[1]))}
    if by_label:
        figure.legend(by_label.values(), by_label, fontsize=8, title=title, title_fontsize=8, loc="outside right upper")


def _known(values_of: Values, places: Iterable[float], shown: Sequence[tuple[str, Measure]]) -> list[Point]:
    """Return the points of those cells and measures that have values."""
    points = [(x, values_of(*what)) for x, what in zip(places, shown, strict=True)]
    return [(x, values) for x, values in points if values]


def _draw(axes: Axes, points: Sequence[Point], colour: str, style: str, label: str | None) -> None:
    if points:
        axes.errorbar(
            [x for x, _ in points],
            [mean(values) for _, values in points],
            yerr=[_spread(values) for _, values in points],
            color=colour,
            linestyle=style,
            marker="o",
            markersize=4,
            capsize=2,
            label=label,
        )


def topologies_figure(reproduction: Reproduction, found: TableResults) -> Figure:
    """Draw Figure 6: accuracy of each head by topology on shared data (probe: a line), and by distance."""
    figure = Figure(figsize=(10.0, 3.8), layout="constrained")
    on_shared, by_hop = figure.subplots(1, 2, width_ratios=[1.0, 2.0])
    cells = [cell for cell, by_seed in found.cells.items() if by_seed]
    for x, cell in enumerate(cells):
        for head, measure in enumerate((SHARED, *HEADS[:3])):
            _bar(on_shared, x, head, list(found.values(cell, measure).values()))
        allowed = list(found.values(cell, PROBE).values())
        if allowed:
            on_shared.hlines(mean(allowed), x - 0.4, x + 0.4, color="C0", linewidth=2)
    on_shared.set_xticks(range(len(cells)), cells)
    on_shared.set_title("shared data; blue lines: what the embedding allows", fontsize=9)
    hops = ("0", "1", "2", "3", "none")
    places = [(cell, hop) for cell in cells for hop in hops if found.values(cell, on_hop(hop, 0))]
    for x, (cell, hop) in enumerate(places):
        for head in range(4):
            _bar(by_hop, x, head, list(found.values(cell, on_hop(hop, head)).values()))
    names = {"0": "own", "none": "other island"}
    by_hop.set_xticks(
        range(len(places)),
        [f"{cell}\n{names.get(hop, f'hop {hop}')}" for cell, hop in places],
        fontsize=8,
    )
    by_hop.set_title("on the data of clients by distance", fontsize=9)
    for axes in (on_shared, by_hop):
        axes.set_ylabel("%")
    handles = [
        Line2D([], [], marker="s", linestyle="", color=_head_colour(head), label=("main", "1", "2", "3")[head])
        for head in range(4)
    ]
    figure.legend(handles=handles, fontsize=8, title="head", ncols=4, loc="outside upper right")
    return figure


def _bar(axes: Axes, x: int, head: int, values: Sequence[float]) -> None:
    if values:
        place, colour = x + 0.2 * (head - 1.5), _head_colour(head)
        axes.bar(place, mean(values), 0.18, yerr=_spread(values), color=colour, capsize=1.5)


def _head_colour(head: int) -> str:
    return ("0.75", "C1", "C2", "C3")[head]


def bytes_figure(reproduction: Reproduction, found: TableResults) -> Figure:
    """Draw the bytes that a client receives against the shared accuracy of its last head."""
    points = []
    for cell, by_seed in found.cells.items():
        if by_seed:
            received, accuracy = (list(found.values(cell, m).values()) for m in (MEGABYTES, LAST))
            kind = _sends(next(iter(by_seed.values())))
            points.append((cell, kind, 1e6 * mean(received), [value / 100.0 for value in accuracy]))
    return frontier_figure(points)


def _sends(result: CellResult) -> Sends:
    """Return what travelled in it."""
    return make_algorithm(AlgorithmConfig(**result.experiment.get("algorithm", {}))).sends


FIGURES: dict[str, Callable[[Reproduction, TableResults], Figure]] = {
    "points": points_figure,
    "regularization": regularization_figure,
    "heads": heads_figure,
    "topologies": topologies_figure,
    "frontier": bytes_figure,
}

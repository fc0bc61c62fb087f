"""Pictures of accuracy and losses."""

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from manyheads.files import write_whole
from manyheads.printable import shortened
from manyheads.report.mark import MARK
from manyheads.report.text import head_name
from manyheads.runs.events import EvaluationEvent, Event, LossesEvent, ProbeEvent, on_test_set
from manyheads.runs.read import read_events, read_summary

COLOURS = matplotlib.colormaps["viridis"]
MAX_NUMBERS = 12  # a heat map with more rows or columns shows no numbers
PANEL_COLUMNS = 3
MAX_HEADS = 12  # of more heads, these many are drawn: a thousand would take minutes and show nothing


def save_figure(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name may have letters that the font lacks
        figure.savefig(content, format="png", dpi=130, metadata=MARK)
    write_whole(path, content.getvalue())


def accuracy_figure(events: Sequence[Event]) -> Figure:
    """Draw private and shared test accuracy by step: a line per head, with the range over clients shaded.

    If the run was probed, a dashed line shows the shared accuracy that the embeddings allow.
    """
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    test = on_test_set(events)
    for number, task in enumerate(("private", "shared")):
        axes = figure.add_subplot(1, 2, number + 1)
        _accuracy_lines(axes, test, task)
        axes.set(title=f"{task} accuracy (band: range over clients)", xlabel="step", ylim=(0, 100))
        axes.set_ylabel("%" if number == 0 else "")
        axes.grid(alpha=0.3)
    for event in events:
        if isinstance(event, ProbeEvent):
            level = 100 * mean(event.shared_accuracy)
            figure.axes[1].axhline(level, color="black", linestyle="--", label="embedding allows")
    if test:
        figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def _accuracy_lines(axes: Axes, events: Sequence[EvaluationEvent], task: str) -> None:
    if not events:
        return
    steps = np.array([event.step for event in events])
    values = 100 * np.array([event[f"{task}_accuracy"] for event in events])  # evaluations x clients x heads
    for head in drawn_heads(values.shape[2]):
        colour, own = head_colour(head, values.shape[2]), values[:, :, head]
        axes.plot(steps, own.mean(1), color=colour, label=head_name(head), marker="o", markersize=3)
        axes.fill_between(steps, own.min(1), own.max(1), color=colour, alpha=0.12, linewidth=0)
    states = [event.after for event in events]
    last = values[:, :, -1].mean(1)
    for number, state in enumerate(sorted({state for state in states if state})):
        at = np.array([here == state for here in states])
        axes.plot(
            steps[at], last[at], color=f"C{number}", marker="os^D"[number % 4], linestyle="", label=f"after {state}"
        )


def drawn_heads(heads: int) -> list[int]:
    """Return the heads that a picture shows: all or, if they are many, some that are evenly apart.

    >>> drawn_heads(5), drawn_heads(1001)[:3], drawn_heads(1001)[-1]
    ([0, 1, 2, 3, 4], [0, 91, 182], 1000)
    """
    return sorted({round(head) for head in np.linspace(0, heads - 1, min(heads, MAX_HEADS))})


def head_colour(head: int, heads: int) -> tuple[float, float, float, float]:
    return COLOURS(head / max(1, heads - 1) * 0.85)


def losses_figure(events: Sequence[Event]) -> Figure:
    """Draw each loss term by step, as a mean over clients."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    losses = [event for event in events if isinstance(event, LossesEvent)]
    for term in losses[0].losses if losses else ():
        points = [(event.step, float(np.mean(event.losses[term]))) for event in losses if term in event.losses]
        shown = [point for point in points if point[1] != 0.0] or points  # a term is zero where it does not apply
        axes.plot(*zip(*shown, strict=True), label=term)
    axes.set(title="loss terms as they are summed (weights and ramp included)", xlabel="step")
    axes.grid(alpha=0.3)
    if losses:
        axes.legend(fontsize="small")
    return figure


def heat_map(axes: Axes, values: NDArray[np.float64], colours: str, most: float = 100.0) -> None:
    """Draw percentages up to `most` as colours, and as numbers if there is room; NaN is grey."""
    colour_map = matplotlib.colormaps[colours]
    axes.imshow(values, cmap=colour_map, vmin=0, vmax=most, interpolation="nearest")
    axes.set_facecolor("lightgrey")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=MAX_NUMBERS + 1, integer=True))
    if max(values.shape) > MAX_NUMBERS:
        return
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            bright = np.dot(colour_map(value / most)[:3], (0.299, 0.587, 0.114)) > 0.5
            ink = "black" if bright else "white"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink, fontsize="small")


def colour_bar(figure: Any, colours: str, label: str, most: float = 100.0) -> None:
    """Add one colour bar for all panels: percentages from 0 to `most`."""
    scale = ScalarMappable(Normalize(0, most), colours)
    figure.colorbar(scale, ax=figure.axes, label=label, aspect=30, panchor=False)


def compare_figure(runs: Mapping[str, Sequence[Path]]) -> Figure:
    """Draw the shared accuracy of each run's last head over time, and of all its heads at the end; means over seeds."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    over_time, at_end = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    most_heads = 1
    for number, (path, folders) in enumerate(runs.items()):
        style: dict[str, Any] = {"color": f"C{number}", "marker": "o", "markersize": 4, "label": plain_text(path)}
        test = [on_test_set(read_events(folder)) for folder in folders]
        last = [[100 * np.mean([client[-1] for client in e.shared_accuracy]) for e in events] for events in test]
        over_time.plot([event.step for event in test[0]], np.mean(last, axis=0), **style)
        shared = 100 * np.mean([read_summary(folder).shared_accuracy for folder in folders], axis=0)
        if len(shared) == 1:  # a single head is a level to compare the other runs with
            at_end.axhline(shared[0], color=style["color"], linestyle="--")
        else:
            at_end.plot(range(len(shared)), shared, **style)
        most_heads = max(most_heads, len(shared))
    over_time.set(title="shared accuracy of the last head", xlabel="step", ylabel="%", ylim=(0, 100))
    at_end.set(title="at the end, by head (dashed: only one)", ylim=(0, 100))
    named = drawn_heads(most_heads)
    at_end.set_xticks(named, [head_name(head) for head in named])
    for axes in (over_time, at_end):
        axes.grid(alpha=0.3)
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    return figure


def plain_text(name: str) -> str:
    """Return a name as a picture can show it: a dollar sign would begin a formula."""
    return shortened(name).replace("$", r"\$")

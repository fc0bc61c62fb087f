"""Pictures of relations between clients: accuracy by hops, accuracy by pairs, who taught whom."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from manyheads.report.figures import PANEL_COLUMNS, colour_bar, drawn_heads, head_colour, heat_map
from manyheads.report.split_figure import MAX_CLASSES, frame_primary_labels, name_classes, name_height
from manyheads.report.text import head_name
from manyheads.runs.events import TaughtCounts
from manyheads.runs.relations import Relations

MAX_INCHES = 18.0  # the height of all rows of clients together


def hops_figure(by_hop: Mapping[str, Sequence[float]]) -> Figure:
    """Draw accuracy on the private data of clients by hops: a line per head, clients out of reach apart."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    values = 100 * np.array(list(by_hop.values()))  # hops x heads
    reached = len(by_hop) - ("none" in by_hop)  # "none" comes last
    for head in drawn_heads(values.shape[1]):
        style: dict[str, Any] = {"color": head_colour(head, values.shape[1]), "marker": "o", "markersize": 4}
        axes.plot(range(reached), values[:reached, head], label=head_name(head), **style)
        axes.plot(range(reached, len(by_hop)), values[reached:, head], linestyle="", **style)
    names = {"0": "0\n(own)", "none": "cannot\narrive"}
    axes.set_xticks(range(len(by_hop)), [names.get(away, away) for away in by_hop])
    axes.set(title="test accuracy on private data of clients that many hops away", xlabel="hops", ylabel="%")
    axes.set(ylim=(-3, 103), xlim=(-0.3, len(by_hop) - 0.7))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize="small")
    return figure


def matrix_figure(accuracy_on: Sequence[Sequence[Sequence[float]]]) -> Figure:
    """Draw the accuracy of every client on the private distribution of every client: main head and last head."""
    values = 100 * np.array(accuracy_on)  # clients x heads x clients
    clients, heads, _ = values.shape
    shown = sorted({0, heads - 1})
    side = _side(clients)
    figure = Figure(figsize=(len(shown) * side + 2, side + 1.1), layout="constrained")
    for number, head in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), number + 1)
        heat_map(axes, values[:, head], "viridis")
        axes.set(title=f"{head_name(head)} head", xlabel="on private data of client")
        axes.set(ylabel="accuracy of client" if number == 0 else "")
    colour_bar(figure, "viridis", "test accuracy, %")
    return figure


def taught_figure(
    relations: Relations, taught: TaughtCounts, primary_labels: Sequence[Sequence[int]], class_names: Sequence[str]
) -> Figure:
    """Draw who taught whom, head by head; below, if classes are few, how often each teacher was right by class."""
    chosen = np.array(relations.chosen)  # students x auxiliary heads x teachers
    clients, heads = len(chosen), drawn_heads(chosen.shape[1])
    rows = -(-len(heads) // PANEL_COLUMNS)
    columns = -(-len(heads) // rows)
    few = len(class_names) <= MAX_CLASSES and taught.right_by_class is not None
    above = rows * (_side(clients) + 0.8)
    below = min(0.28 * clients, MAX_INCHES) + 1.6 + name_height(class_names) if few else 0.0
    width = max(columns * _side(clients), min(9.0, 0.42 * len(class_names)) if few else 0.0) + 1.8
    figure = Figure(figsize=(width, above + below), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(above, below)) if few else (figure,)
    shares = _share(chosen, chosen.sum(2, keepdims=True))
    most = max(1.0, float(np.nan_to_num(shares).max()))
    for panel, head in enumerate(heads):
        axes = parts[0].add_subplot(rows, columns, panel + 1)
        heat_map(axes, shares[:, head], "Blues", most)
        beside = panel % columns == 0
        axes.set(title=f"{head_name(head + 1)} head", xlabel="teacher", ylabel="student" if beside else "")
    colour_bar(parts[0], "Blues", "samples taught, %", most)
    if few:
        _right_by_class(parts[1], taught, class_names)
        frame_primary_labels(parts[1].axes[0], primary_labels)
    return figure


def _right_by_class(figure: Any, taught: TaughtCounts, class_names: Sequence[str]) -> None:
    axes = figure.add_subplot()
    heat_map(axes, _share(np.array(taught.right_by_class), np.array(taught.chosen_by_class)), "Greens")
    axes.set(aspect="auto", xlabel="class (framed: primary labels; grey: never chosen)", ylabel="teacher")
    axes.set_title("how often a chosen teacher was right")
    name_classes(axes, class_names)
    colour_bar(figure, "Greens", "right, %")


def _side(clients: int) -> float:
    """Return the side of a square panel of clients x clients, in inches: wide enough for its numbers."""
    return min(4.4, max(2.2, 0.37 * clients))


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share in percent; NaN if the whole is zero."""
    return np.where(whole > 0, 100 * part / np.maximum(whole, 1), np.nan)

"""The picture of bytes against accuracy."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, NullFormatter
from matplotlib.transforms import Bbox

from manyheads.report.figures import plain_text
from manyheads.report.text import bytes_text

KINDS = {  # colour, marker, and text of the legend
    "predictions": ("C0", "o", "tables of predictions"),
    "weights": ("C1", "s", "checkpoints"),
    "averaging": ("C2", "^", "averaged weights"),
    "nothing": ("C7", "D", "nothing travels"),
}
LABEL_OFFSETS = (  # places for a label: points to the right and up, and its alignment
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (6, 6, "left", "bottom"),
    (6, -6, "left", "top"),
    (-6, 6, "right", "bottom"),
    (-6, -6, "right", "top"),
    (0, 8, "center", "bottom"),
    (0, -8, "center", "top"),
)
UPRIGHT = ((1, "bottom"), (-1, "top"))  # above or below the error bar, and the end of the label that touches it


def frontier_figure(points: Sequence[tuple[str, str, float, Sequence[float]]]) -> Figure:
    """Draw accuracy against bytes.

    A point is (label, key of `KINDS`, bytes received per client, shared accuracies of the last head over seeds). Error
    bars are the standard deviation over seeds. A run that received nothing is a level: a logarithmic axis has no zero.
    """
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    placed = []
    for label, kind, received, accuracies in points:
        colour, marker, meaning = KINDS[kind]
        level, spread = 100 * mean(accuracies), 100 * stdev(accuracies) if len(accuracies) > 1 else 0.0
        if received > 0:
            named = None if meaning in axes.get_legend_handles_labels()[1] else meaning
            style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "", "capsize": 3}
            axes.errorbar(received, level, spread or None, label=named, **style)
            placed.append((plain_text(label), received, level, spread))
        else:
            axes.axhline(level, color=colour, linestyle="--", label=f"{plain_text(label)} (receives nothing)")
            axes.axhspan(level - spread, level + spread, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="received per client", ylabel="shared accuracy of the last head, %")
    axes.margins(y=0.15)
    axes.grid(alpha=0.3)
    _byte_axis(axes, [received for _, received, _, _ in placed])
    if points:
        figure.legend(loc="outside upper center", ncols=4, fontsize="small")
    _label_points(axes, placed)
    return figure


def _byte_axis(axes: Axes, received: Sequence[float]) -> None:
    """Let the axis span whole powers of ten around the points, with room for their labels."""
    if received:
        axes.set_xlim(10 ** math.floor(math.log10(min(received) / 2)), 10 ** math.ceil(math.log10(max(received) * 2)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count).replace(".0 ", " ")))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _label_points(axes: Axes, points: Sequence[tuple[str, float, float, float]]) -> None:
    """Put a label beside each point (label, x, y, half its error bar), or upright at an end of its error bar.

    Of all these places, a label takes the one where it covers least.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # places the axes, so that texts can be measured
    taken = []
    for _, x, y, spread in points:
        (left, low), (_, high) = axes.transData.transform([(x, y - spread), (x, y + spread)])
        taken.append(Bbox.from_extents(left - 6, low - 6, left + 6, high + 6))
    for label, x, y, spread in points:
        tried = [_label(axes, label, x, y, offset) for offset in LABEL_OFFSETS]
        tried += [_label(axes, label, x, y + up * spread, (0, 8 * up, "center", end), 90) for up, end in UPRIGHT]
        boxes = [text.get_window_extent() for text in tried]
        covered = [_covered(box, taken) + _area(box) - _covered(box, [axes.bbox]) for box in boxes]
        best = int(np.argmin(covered))
        for number, text in enumerate(tried):
            if number != best:
                text.remove()
        taken.append(boxes[best])


def _label(
    axes: Axes, label: str, x: float, y: float, offset: tuple[int, int, str, str], rotation: int = 0
) -> Annotation:
    right, up, horizontal, vertical = offset
    style: dict[str, Any] = {"ha": horizontal, "va": vertical, "fontsize": "small", "rotation": rotation}
    return axes.annotate(label, (x, y), (right, up), textcoords="offset points", **style)


def _covered(box: Bbox, others: Sequence[Any]) -> float:
    """Return the area that a box shares with others."""
    return sum(_area(shared) for other in others if (shared := Bbox.intersection(box, other)) is not None)


def _area(box: Bbox) -> float:
    return box.width * box.height

"""Pictures, from the events of a run folder."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from manyheads.files import write_whole
from manyheads.report.tables import bytes_text, head_name
from manyheads.runs import Event, read_events, read_summary

COLOURS = matplotlib.colormaps["viridis"]
MOST_NUMBERS = 12  # a heat map with more rows or columns has no numbers in it
MOST_CLASSES = 30  # more have no column of their own
PANEL_COLUMNS = 3
KINDS = {  # of the frontier: colour, marker, and what the legend says
    "predictions": ("C0", "o", "tables of predictions"),
    "weights": ("C1", "s", "checkpoints"),
    "averaging": ("C2", "^", "averaged weights"),
    "alone": ("C7", "D", "nothing travels"),
}
BESIDE = (  # where a label may stand: points to the right and up, and how it is aligned
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (6, 6, "left", "bottom"),
    (6, -6, "left", "top"),
    (-6, 6, "right", "bottom"),
    (-6, -6, "right", "top"),
    (0, 8, "center", "bottom"),
    (0, -8, "center", "top"),
)
UPRIGHT = ((1, "bottom"), (-1, "top"))  # above or below, and which end of the label is there


def plot_run(folder: str | Path) -> list[Path]:
    """Accuracy, losses and the split; where the run measured them also hops, clients by clients, and who taught whom.

    All under `plots/`.
    """
    folder = Path(folder)
    events = read_events(folder)
    (folder / "plots").mkdir(exist_ok=True)
    start = next(event for event in events if event["event"] == "start")
    pictures = {
        "accuracy.png": accuracy_figure(events),
        "losses.png": losses_figure(events),
        "split.png": split_figure(
            start["label_counts"], start["primary_labels"], start["class_names"], start["client_names"]
        ),
        **_relations(events, start),
    }
    title = _plain(f"{folder.name} ({start['what']})" if "what" in start else folder.name)
    for name, figure in pictures.items():
        figure.suptitle(title, fontsize="small", color="grey")
        save(figure, folder / "plots" / name)
    return [folder / "plots" / name for name in pictures]


def _relations(events: Sequence[Event], start: Event) -> dict[str, Figure]:
    """Pictures of what clients are to each other, from the last events that say it."""
    pictures = {}
    test = next(iter(on_test_set(events)[::-1]), {})
    if len(test.get("accuracy_on", ())) > 1:
        if start.get("exchanges", True):
            pictures["hops.png"] = hops_figure(test["by_hop"])
        pictures["matrix.png"] = matrix_figure(test["accuracy_on"])
    taught = next((event for event in reversed(events) if event["event"] == "taught"), None)
    if taught is not None and taught["chosen"][0]:
        pictures["taught.png"] = taught_figure(taught, start["primary_labels"], start["class_names"])
    return pictures


def on_test_set(events: Sequence[Event]) -> list[Event]:
    """Evaluations on the test set, each step once."""
    found = {e["step"]: e for e in events if e["event"] == "evaluation" and e["part"] == "test"}
    return [found[step] for step in sorted(found)]


def save(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    write_whole(path, content.getvalue())


def accuracy_figure(events: Sequence[Event]) -> Figure:
    """Private and shared test accuracy by step; a line per head, the range over clients shaded.

    Beside them, where the run has it, the probe: the shared accuracy that the embeddings would allow.
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
        if event["event"] == "probe":
            level = 100 * mean(event["shared_accuracy"])
            figure.axes[1].axhline(level, color="black", linestyle="--", label="embedding allows")
    if test:
        figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def _accuracy_lines(axes: Axes, events: Sequence[Event], task: str) -> None:
    if not events:
        return
    steps = np.array([event["step"] for event in events])
    values = 100 * np.array([event[f"{task}_accuracy"] for event in events])  # evaluations x clients x heads
    for head in range(values.shape[2]):
        colour, own = _head_colour(head, values.shape[2]), values[:, :, head]
        axes.plot(steps, own.mean(1), color=colour, label=head_name(head), marker="o", markersize=3)
        axes.fill_between(steps, own.min(1), own.max(1), color=colour, alpha=0.12, linewidth=0)
    states = [event.get("after") for event in events]
    last = values[:, :, -1].mean(1)
    for number, state in enumerate(sorted({state for state in states if state})):
        at = np.array([here == state for here in states])
        axes.plot(
            steps[at], last[at], color=f"C{number}", marker="os^D"[number % 4], linestyle="", label=f"after {state}"
        )


def _head_colour(head: int, heads: int) -> tuple[float, float, float, float]:
    return COLOURS(head / max(1, heads - 1) * 0.85)


def losses_figure(events: Sequence[Event]) -> Figure:
    """Each loss term by step, mean over clients."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    losses = [event for event in events if event["event"] == "losses"]
    for term in losses[0]["losses"] if losses else ():
        points = [(event["step"], float(np.mean(event["losses"][term]))) for event in losses]
        shown = [point for point in points if point[1] != 0.0] or points  # a term is zero where it does not apply
        axes.plot(*zip(*shown, strict=True), label=term)
    axes.set(title="loss terms as they are summed (weights and ramp included)", xlabel="step")
    axes.grid(alpha=0.3)
    if losses:
        axes.legend(fontsize="small")
    return figure


def split_figure(
    label_counts: Sequence[Sequence[int]],
    primary_labels: Sequence[Sequence[int]],
    class_names: Sequence[str],
    client_names: Sequence[str],
) -> Figure:
    """Who owns what: clients x labels, the darker the more samples; primary labels are framed."""
    counts = np.array(label_counts)
    clients, classes = counts.shape
    height = min(10.0, 0.35 * clients + 1.6) + (_name_height(class_names) if classes <= MOST_CLASSES else 0.0)
    figure = Figure(figsize=(min(12, max(5, 0.35 * classes + 2)), height), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest")
    if classes <= MOST_CLASSES:
        _name_classes(axes, class_names)
        _frame(axes, primary_labels)
    axes.set_yticks(range(clients), [_plain(name) for name in client_names])
    axes.set(
        title="private samples"
        + (" (framed: primary labels)" if classes <= MOST_CLASSES and any(primary_labels) else ""),
        xlabel="label",
    )
    figure.colorbar(image, label="samples")
    return figure


def _name_height(class_names: Sequence[str]) -> float:
    """How much higher a figure has to be, in inches, for names that are written upwards."""
    return max(0.0, 0.09 * (max(len(_plain(name)) for name in class_names) - 3))


def _name_classes(axes: Axes, class_names: Sequence[str]) -> None:
    labels = [_plain(name) for name in class_names]
    axes.set_xticks(range(len(labels)), labels, rotation=0 if max(map(len, labels)) <= 2 else 90)


def _frame(axes: Axes, primary_labels: Sequence[Sequence[int]]) -> None:
    """An orange frame around each client's primary labels; clients are rows, labels columns."""
    for client, primary in enumerate(primary_labels):
        for label in primary:
            place = (label - 0.46, client - 0.44)
            axes.add_patch(Rectangle(place, 0.92, 0.88, fill=False, edgecolor="darkorange", linewidth=1.5))


def hops_figure(by_hop: Mapping[str, Sequence[float]]) -> Figure:
    """Accuracy on the private data of clients so many hops away; a line per head, clients out of reach apart."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    values = 100 * np.array(list(by_hop.values()))  # hops x heads
    reached = len(by_hop) - ("none" in by_hop)  # "none" comes last
    for head in range(values.shape[1]):
        style: dict[str, Any] = {"color": _head_colour(head, values.shape[1]), "marker": "o", "markersize": 4}
        axes.plot(range(reached), values[:reached, head], label=head_name(head), **style)
        axes.plot(range(reached, len(by_hop)), values[reached:, head], linestyle="", **style)
    names = {"0": "0\n(own)", "none": "cannot\narrive"}
    axes.set_xticks(range(len(by_hop)), [names.get(away, away) for away in by_hop])
    axes.set(title="test accuracy on private data of clients so many hops away", xlabel="hops", ylabel="%")
    axes.set(ylim=(-3, 103), xlim=(-0.3, len(by_hop) - 0.7))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize="small")
    return figure


def matrix_figure(accuracy_on: Sequence[Sequence[Sequence[float]]]) -> Figure:
    """Every client on the private distribution of every client: the main head, and the last one."""
    values = 100 * np.array(accuracy_on)  # clients x heads x clients
    clients, heads, _ = values.shape
    shown = sorted({0, heads - 1})
    side = _side(clients)
    figure = Figure(figsize=(len(shown) * side + 2, side + 1.1), layout="constrained")
    for number, head in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), number + 1)
        _heat(axes, values[:, head], "viridis")
        axes.set(title=f"{head_name(head)} head", xlabel="on private data of client")
        axes.set(ylabel="accuracy of client" if number == 0 else "")
    _colour_bar(figure, "viridis", "test accuracy, %")
    return figure


def taught_figure(taught: Event, primary_labels: Sequence[Sequence[int]], class_names: Sequence[str]) -> Figure:
    """Who taught whom, head by head; below, where classes are few, how often each teacher was right about each."""
    chosen = np.array(taught["chosen"])  # pupils x auxiliary heads x teachers
    clients, heads, _ = chosen.shape
    rows = -(-heads // PANEL_COLUMNS)
    columns = -(-heads // rows)
    few = len(class_names) <= MOST_CLASSES and taught["right_by_class"] is not None
    above, below = rows * (_side(clients) + 0.8), 0.28 * clients + 1.6 + _name_height(class_names) if few else 0.0
    width = max(columns * _side(clients), min(9.0, 0.42 * len(class_names)) if few else 0.0) + 1.8
    figure = Figure(figsize=(width, above + below), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(above, below)) if few else (figure,)
    shares = _share(chosen, chosen.sum(2, keepdims=True))
    most = max(1.0, float(np.nan_to_num(shares).max()))
    for head in range(heads):
        axes = parts[0].add_subplot(rows, columns, head + 1)
        _heat(axes, shares[:, head], "Blues", most)
        axes.set(title=f"{head_name(head + 1)} head", xlabel="teacher", ylabel="pupil" if head % columns == 0 else "")
    _colour_bar(parts[0], "Blues", "samples taught, %", most)
    if few:
        _right_by_class(parts[1], taught, class_names)
        _frame(parts[1].axes[0], primary_labels)
    return figure


def _right_by_class(figure: Any, taught: Event, class_names: Sequence[str]) -> None:
    axes = figure.add_subplot()
    _heat(axes, _share(np.array(taught["right_by_class"]), np.array(taught["chosen_by_class"])), "Greens")
    axes.set(aspect="auto", xlabel="class (framed: primary labels; grey: never chosen)", ylabel="teacher")
    axes.set_title("how often a teacher that was chosen was right")
    _name_classes(axes, class_names)
    _colour_bar(figure, "Greens", "right, %")


def _side(clients: int) -> float:
    """Of a square panel of clients x clients, in inches: wide enough for numbers where they are written."""
    return min(4.4, max(2.2, 0.37 * clients))


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """In percent; not a number where there is no whole."""
    return np.where(whole > 0, 100 * part / np.maximum(whole, 1), np.nan)


def _heat(axes: Axes, values: NDArray[np.float64], colours: str, most: float = 100.0) -> None:
    """Percentages up to `most` as colours, and as numbers where there is room; what is not a number is grey."""
    colour_map = matplotlib.colormaps[colours]
    axes.imshow(values, cmap=colour_map, vmin=0, vmax=most, interpolation="nearest")
    axes.set_facecolor("lightgrey")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=MOST_NUMBERS + 1, integer=True))
    if max(values.shape) > MOST_NUMBERS:
        return
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            bright = np.dot(colour_map(value / most)[:3], (0.299, 0.587, 0.114)) > 0.5
            ink = "black" if bright else "white"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink, fontsize="small")


def _colour_bar(figure: Any, colours: str, label: str, most: float = 100.0) -> None:
    """One for all panels: percentages from 0 on."""
    scale = ScalarMappable(Normalize(0, most), colours)
    figure.colorbar(scale, ax=figure.axes, label=label, aspect=30, panchor=False)


def compare_figure(runs: Mapping[str, Sequence[Path]]) -> Figure:
    """Shared accuracy of each run's last head over time, and of all its heads at the end; means over seeds."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    over_time, at_end = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    most_heads = 1
    for number, (path, folders) in enumerate(runs.items()):
        style: dict[str, Any] = {"color": f"C{number}", "marker": "o", "markersize": 4, "label": _plain(path)}
        test = [on_test_set(read_events(folder)) for folder in folders]
        last = [[100 * np.mean([client[-1] for client in e["shared_accuracy"]]) for e in events] for events in test]
        over_time.plot([event["step"] for event in test[0]], np.mean(last, axis=0), **style)
        shared = 100 * np.mean([read_summary(folder)["shared_accuracy"] for folder in folders], axis=0)
        if len(shared) == 1:  # a model with one head: a level to compare the others with
            at_end.axhline(shared[0], color=style["color"], linestyle="--")
        else:
            at_end.plot(range(len(shared)), shared, **style)
        most_heads = max(most_heads, len(shared))
    over_time.set(title="shared accuracy of the last head", xlabel="step", ylabel="%", ylim=(0, 100))
    at_end.set(title="at the end, by head (dashed: only one)", ylim=(0, 100))
    at_end.set_xticks(range(most_heads), [head_name(head) for head in range(most_heads)])
    for axes in (over_time, at_end):
        axes.grid(alpha=0.3)
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    return figure


def frontier_figure(points: Sequence[tuple[str, str, float, Sequence[float]]]) -> Figure:
    """Accuracy for bytes: (label, kind, bytes received per client, shared accuracies of the last head over seeds).

    The kind is a key of `KINDS`. Error bars are the standard deviation over seeds. What received nothing is a level,
    for a logarithm has no place for it.
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
            placed.append((_plain(label), received, level, spread))
        else:
            axes.axhline(level, color=colour, linestyle="--", label=f"{_plain(label)} (receives nothing)")
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
    """Whole powers of ten around the points, with room for their labels."""
    if received:
        axes.set_xlim(10 ** math.floor(math.log10(min(received) / 2)), 10 ** math.ceil(math.log10(max(received) * 2)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count).replace(".0 ", " ")))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _label_points(axes: Axes, points: Sequence[tuple[str, float, float, float]]) -> None:
    """A label beside each point (label, x, y, half its error bar), or upright at an end of its bar: where it covers
    least.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # places the axes, so that texts can be measured
    taken = []
    for _, x, y, spread in points:
        (left, low), (_, high) = axes.transData.transform([(x, y - spread), (x, y + spread)])
        taken.append(Bbox.from_extents(left - 6, low - 6, left + 6, high + 6))
    for label, x, y, spread in points:
        tried = [_beside(axes, label, x, y, side) for side in BESIDE]
        tried += [_beside(axes, label, x, y + up * spread, (0, 8 * up, "center", end), 90) for up, end in UPRIGHT]
        boxes = [text.get_window_extent() for text in tried]
        covered = [_covered(box, taken) + _area(box) - _covered(box, [axes.bbox]) for box in boxes]
        best = int(np.argmin(covered))
        for number, text in enumerate(tried):
            if number != best:
                text.remove()
        taken.append(boxes[best])


def _beside(
    axes: Axes, label: str, x: float, y: float, side: tuple[int, int, str, str], rotation: int = 0
) -> Annotation:
    right, up, horizontal, vertical = side
    style: dict[str, Any] = {"ha": horizontal, "va": vertical, "fontsize": "small", "rotation": rotation}
    return axes.annotate(label, (x, y), (right, up), textcoords="offset points", **style)


def _covered(box: Bbox, others: Sequence[Any]) -> float:
    """The area that a box shares with others."""
    return sum(_area(shared) for other in others if (shared := Bbox.intersection(box, other)) is not None)


def _area(box: Bbox) -> float:
    return box.width * box.height


def _plain(name: str) -> str:
    """A dollar would begin a formula."""
    return name.replace("$", r"\$")

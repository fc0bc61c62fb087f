"""Pictures, from the events of a run folder."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyheads.report.tables import head_name
from manyheads.runs import Event, read_events, read_summary, write_whole

COLOURS = matplotlib.colormaps["viridis"]


def plot_run(folder: Path) -> list[Path]:
    """Accuracy by step and head, losses by step, and the split, under `plots/`."""
    events = read_events(folder)
    (folder / "plots").mkdir(exist_ok=True)
    start = next(event for event in events if event["event"] == "start")
    pictures = {
        "accuracy.png": accuracy_figure(events),
        "losses.png": losses_figure(events),
        "split.png": split_figure(start["label_counts"], start["primary_labels"], start["class_names"]),
    }
    for name, figure in pictures.items():
        save(figure, folder / "plots" / name)
    return [folder / "plots" / name for name in pictures]


def save(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    write_whole(path, content.getvalue())


def accuracy_figure(events: Sequence[Event]) -> Figure:
    """Private and shared test accuracy by step; a line per head, the range over clients shaded."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    test = [event for event in events if event["event"] == "evaluation" and event["part"] == "test"]
    for number, task in enumerate(("private", "shared")):
        axes = figure.add_subplot(1, 2, number + 1)
        _accuracy_lines(axes, test, task)
        axes.set(title=f"{task} accuracy", xlabel="step", ylabel="%" if number == 0 else "", ylim=(0, 100))
        axes.grid(alpha=0.3)
    if test:
        figure.axes[1].legend(loc="lower right", fontsize="small")
    return figure


def _accuracy_lines(axes: Axes, events: Sequence[Event], task: str) -> None:
    if not events:
        return
    steps = [event["step"] for event in events]
    values = 100 * np.array([event[f"{task}_accuracy"] for event in events])  # evaluations x clients x heads
    for head in range(values.shape[2]):
        colour = COLOURS(head / max(1, values.shape[2] - 1) * 0.85)
        own = values[:, :, head]
        axes.plot(steps, own.mean(1), color=colour, label=head_name(head), marker="o", markersize=3)
        axes.fill_between(steps, own.min(1), own.max(1), color=colour, alpha=0.12, linewidth=0)


def losses_figure(events: Sequence[Event]) -> Figure:
    """Each loss term by step, mean over clients."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    losses = [event for event in events if event["event"] == "losses"]
    for term in losses[0]["losses"] if losses else ():
        axes.plot([e["step"] for e in losses], [np.mean(e["losses"][term]) for e in losses], label=term)
    axes.set(title="loss terms as they are summed (weights and ramp included)", xlabel="step")
    axes.grid(alpha=0.3)
    if losses:
        axes.legend(fontsize="small")
    return figure


def split_figure(
    label_counts: Sequence[Sequence[int]], primary_labels: Sequence[Sequence[int]], class_names: Sequence[str]
) -> Figure:
    """Who owns what: clients x labels, the darker the more samples; primary labels are framed."""
    counts = np.array(label_counts)
    clients, classes = counts.shape
    figure = Figure(figsize=(min(12, max(5, 0.35 * classes + 2)), min(10, 0.35 * clients + 1.6)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest")
    if classes <= 30:
        labels = [_plain(name) for name in class_names]
        axes.set_xticks(range(classes), labels, rotation=0 if max(map(len, labels)) <= 2 else 90)
        for client, primary in enumerate(primary_labels):
            for label in primary:
                frame = matplotlib.patches.Rectangle(
                    (label - 0.46, client - 0.44),
                    0.92,
                    0.88,
                    fill=False,
                    edgecolor="darkorange",
                    linewidth=1.5,
                )
                axes.add_patch(frame)
    axes.set_yticks(range(clients), [f"client-{client}" for client in range(clients)])
    axes.set(title="private samples" + (" (framed: primary labels)" if classes <= 30 else ""), xlabel="label")
    figure.colorbar(image, label="samples")
    return figure


def compare_figure(runs: Mapping[str, Sequence[Path]]) -> Figure:
    """Shared accuracy of each run's last head over time, and of all its heads at the end; means over seeds."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    over_time, at_end = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    most_heads = 1
    for number, (path, folders) in enumerate(runs.items()):
        style: dict[str, Any] = {"color": f"C{number}", "marker": "o", "markersize": 4, "label": _plain(path)}
        test = [[e for e in read_events(f) if e["event"] == "evaluation" and e["part"] == "test"] for f in folders]
        last = [[100 * np.mean([client[-1] for client in e["shared_accuracy"]]) for e in events] for events in test]
        over_time.plot([event["step"] for event in test[0]], np.mean(last, axis=0), **style)
        shared = 100 * np.mean([read_summary(folder)["shared_accuracy"] for folder in folders], axis=0)
        if len(shared) == 1:  # a model with one head: a level to compare the others with
            at_end.axhline(shared[0], color=style["color"], linestyle="--", label=f"{_plain(path)} (one head)")
        else:
            at_end.plot(range(len(shared)), shared, **style)
        most_heads = max(most_heads, len(shared))
    over_time.set(title="shared accuracy of the last head", xlabel="step", ylabel="%", ylim=(0, 100))
    at_end.set(title="shared accuracy at the end, by head", ylim=(0, 100))
    at_end.set_xticks(range(most_heads), [head_name(head) for head in range(most_heads)])
    for axes in (over_time, at_end):
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", fontsize="small")
    return figure


def _plain(name: str) -> str:
    """A dollar would begin a formula."""
    return name.replace("$", r"\$")

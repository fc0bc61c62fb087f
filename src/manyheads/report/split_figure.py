"""The picture of who owns what."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from manyheads.report.figures import plain_text

MOST_CLASSES = 30  # more have no column of their own
MOST_NAMES = 40  # of more clients the names would cover each other


def split_figure(
    label_counts: Sequence[Sequence[int]],
    primary_labels: Sequence[Sequence[int]],
    class_names: Sequence[str],
    client_names: Sequence[str],
) -> Figure:
    """Who owns what: clients x labels, the darker the more samples; primary labels are framed."""
    counts = np.array(label_counts)
    clients, classes = counts.shape
    height = min(10.0, 0.35 * clients + 1.6) + (name_height(class_names) if classes <= MOST_CLASSES else 0.0)
    figure = Figure(figsize=(min(12, max(5, 0.35 * classes + 2)), height), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest")
    if classes <= MOST_CLASSES:
        name_classes(axes, class_names)
        frame_primary_labels(axes, primary_labels)
    if clients <= MOST_NAMES:
        axes.set_yticks(range(clients), [plain_text(name) for name in client_names])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(
        ylabel="" if clients <= MOST_NAMES else "number of the client",
        title="private samples"
        + (" (framed: primary labels)" if classes <= MOST_CLASSES and any(primary_labels) else ""),
        xlabel="label",
    )
    figure.colorbar(image, label="samples")
    return figure


def name_height(class_names: Sequence[str]) -> float:
    """How much higher a figure has to be, in inches, for names that are written upwards."""
    return max(0.0, 0.09 * (max(len(plain_text(name)) for name in class_names) - 3))


def name_classes(axes: Axes, class_names: Sequence[str]) -> None:
    labels = [plain_text(name) for name in class_names]
    axes.set_xticks(range(len(labels)), labels, rotation=0 if max(map(len, labels)) <= 2 else 90)


def frame_primary_labels(axes: Axes, primary_labels: Sequence[Sequence[int]]) -> None:
    """An orange frame around each client's primary labels; clients are rows, labels columns."""
    for client, primary in enumerate(primary_labels):
        for label in primary:
            place = (label - 0.46, client - 0.44)
            axes.add_patch(Rectangle(place, 0.92, 0.88, fill=False, edgecolor="darkorange", linewidth=1.5))

"""The picture of the split: which client owns how many samples of each label."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from manyheads.report.figures import plain_text

MAX_CLASSES = 30  # more classes are not named
MAX_NAMES = 40  # the names of more clients would cover each other


def split_figure(
    label_counts: Sequence[Sequence[int]],
    primary_labels: Sequence[Sequence[int]],
    class_names: Sequence[str],
    client_names: Sequence[str],
) -> Figure:
    """Draw samples by client and label: the darker, the more; primary labels are framed."""
    counts = np.array(label_counts)
    clients, classes = counts.shape
    height = min(10.0, 0.35 * clients + 1.6) + (name_height(class_names) if classes <= MAX_CLASSES else 0.0)
    figure = Figure(figsize=(min(12, max(5, 0.35 * classes + 2)), height), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest")
    if classes <= MAX_CLASSES:
        name_classes(axes, class_names)
        frame_primary_labels(axes, primary_labels)
    if clients <= MAX_NAMES:
        axes.set_yticks(range(clients), [plain_text(name) for name in client_names])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(
        ylabel="" if clients <= MAX_NAMES else "number of the client",
        title="private samples"
        + (" (framed: primary labels)" if classes <= MAX_CLASSES and any(primary_labels) else ""),
        xlabel="label",
    )
    figure.colorbar(image, label="samples")
    return figure


def name_height(class_names: Sequence[str]) -> float:
    """Return the extra height of a figure, in inches, for names that are written upwards."""
    return max(0.0, 0.09 * (max(len(plain_text(name)) for name in class_names) - 3))


def name_classes(axes: Axes, class_names: Sequence[str]) -> None:
    labels = [plain_text(name) for name in class_names]
    axes.set_xticks(range(len(labels)), labels, rotation=0 if max(map(len, labels)) <= 2 else 90)


def frame_primary_labels(axes: Axes, primary_labels: Sequence[Sequence[int]]) -> None:
    """Draw an orange frame around each client's primary labels; clients are rows, labels columns."""
    for client, primary in enumerate(primary_labels):
        for label in primary:
            place = (label - 0.46, client - 0.44)
            axes.add_patch(Rectangle(place, 0.92, 0.88, fill=False, edgecolor="darkorange", linewidth=1.5))

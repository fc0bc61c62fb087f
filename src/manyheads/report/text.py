"""Numbers and names as text."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from manyheads.printable import printable

Summary = Mapping[str, Any]
TASKS = ("private", "shared")
MOST_CLASSES = 20  # more have no row or column of their own
MOST_LETTERS = 100  # of the names of classes that stand side by side
OF_THESE_RIGHT = "of these\nright"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def head_name(head: int) -> str:
    return "main" if head == 0 else f"aux {head}"


def what(summary: Summary) -> str:
    """Name the algorithm and, if there is one, the graph: `averaging, cycle`."""
    return ", ".join(str(summary[key]) for key in ("algorithm", "graph") if summary.get(key))


def labels_text(labels: Sequence[int], names: Sequence[str], most: int = 5) -> str:
    """Name the labels if they are few; otherwise say how many there are."""
    if len(labels) > most:
        return f"{len(labels)} of {len(names)}"
    return printable(", ".join(names[label] for label in labels))


def share_text(part: float, whole: float) -> str:
    """Return the share in percent; empty if the whole is zero."""
    return percent(part / whole) if whole else ""


def keys_text(keys: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {textwrap.shorten(json.dumps(value), MOST_LETTERS)}" for key, value in keys.items())


def mean_and_spread(values: Sequence[float]) -> str:
    """Return a mean such as `85.1`, or over several seeds `85.1 ± 4.6`."""
    return percent(mean(values)) + (f" ± {percent(stdev(values))}" if len(values) > 1 else "")


def bytes_text(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000.0:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000.0
    return f"{count:.1f} TB"

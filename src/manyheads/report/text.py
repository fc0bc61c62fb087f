"""Numbers and names as text."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from manyheads.printable import printable
from manyheads.runs.summary import Judged, Summary

TASKS = ("private", "shared")
MAX_ROWS = 20  # more clients or hops are summarised
MAX_CLASSES = 20  # more classes are summarised
MAX_LENGTH = 100  # of the names of all classes together
OF_THESE_RIGHT = "of these\nright"


def accuracy(judged: Judged, task: str) -> list[float]:
    """Return the accuracies by head for one of `TASKS`."""
    return judged.private_task if task == "private" else judged.shared_accuracy


def extremes(values: Sequence[float]) -> tuple[int, int]:
    """Return the positions of the highest and the lowest value; among equals the first."""
    numbers = range(len(values))
    return max(numbers, key=lambda at: (values[at], -at)), min(numbers, key=lambda at: (values[at], at))


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def head_name(head: int) -> str:
    return "main" if head == 0 else f"aux {head}"


def method_text(summary: Summary) -> str:
    """Name the algorithm and the graph, if there is one: `averaging, cycle`."""
    return printable(", ".join(filter(None, (summary.algorithm, summary.graph))))


def labels_text(labels: Sequence[int], names: Sequence[str], most: int = 5) -> str:
    """Name the labels if they are few; otherwise say how many there are."""
    if len(labels) > most:
        return f"{len(labels)} of {len(names)}"
    return printable(", ".join(names[label] for label in labels))


def names_text(names: Sequence[str], most: int = 10) -> str:
    """List names: `a, b, c`; if there are many, the first ones and the number of the others."""
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more} more"


def share_text(part: float, whole: float) -> str:
    """Return the share in percent; empty if the whole is zero."""
    return percent(part / whole) if whole else ""


def keys_text(keys: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {textwrap.shorten(json.dumps(value), MAX_LENGTH)}" for key, value in keys.items())


def mean_and_spread(values: Sequence[float]) -> str:
    """Return a mean such as `85.1`, or over several seeds `85.1 ± 4.6`."""
    return percent(mean(values)) + (f" ± {percent(stdev(values))}" if len(values) > 1 else "")


def bytes_text(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000.0:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000.0
    return f"{count:.1f} TB"

"""Numbers and names as text."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Protocol

from manyheads.printable import printable
from manyheads.runs.summary import Summary

TASKS = ("private", "shared")
MOST_ROWS = 20  # more clients, or hops, have no line of their own
MOST_CLASSES = 20  # more have no row or column of their own
MOST_LETTERS = 100  # of the names of classes that stand side by side
OF_THESE_RIGHT = "of these\nright"


class Judged(Protocol):
    """A client, a mean over clients, or whatever else has accuracies by head."""

    @property
    def private_accuracy(self) -> list[float]: ...

    @property
    def shared_accuracy(self) -> list[float]: ...


def accuracy(judged: Judged, task: str) -> list[float]:
    """Return the accuracies by head for one of `TASKS`."""
    return judged.private_accuracy if task == "private" else judged.shared_accuracy


def extremes(values: Sequence[float]) -> tuple[int, int]:
    """Return where the highest and the lowest stand; the first of equals."""
    numbers = range(len(values))
    return max(numbers, key=lambda at: (values[at], -at)), min(numbers, key=lambda at: (values[at], at))


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def head_name(head: int) -> str:
    return "main" if head == 0 else f"aux {head}"


def what(summary: Summary) -> str:
    """Name the algorithm and, if there is one, the graph: `averaging, cycle`."""
    return printable(", ".join(filter(None, (summary.algorithm, summary.graph))))


def labels_text(labels: Sequence[int], names: Sequence[str], most: int = 5) -> str:
    """Name the labels if they are few; otherwise say how many there are."""
    if len(labels) > most:
        return f"{len(labels)} of {len(names)}"
    return printable(", ".join(names[label] for label in labels))


def first_of(names: Sequence[str], most: int = 10) -> str:
    """List names: `a, b, c`; of many the first ones and how many more there are."""
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more} more"


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

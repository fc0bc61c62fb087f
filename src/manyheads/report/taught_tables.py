"""The tables of who taught whom."""

from collections.abc import Sequence
from statistics import mean, stdev

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.text import (
    MAX_CLASSES,
    MAX_ROWS,
    OF_THESE_RIGHT,
    extremes,
    head_name,
    labels_text,
    percent,
    share_text,
)
from manyheads.runs.summary import Summary


def taught_table(summary: Summary) -> Table:
    """Show how many samples each auxiliary head learned from its own client and from others, and how many correctly."""
    table = Table(title="Who taught each auxiliary head, in % of public samples")
    table.add_column("head", no_wrap=True)
    taught = summary.taught
    labelled = taught is None or taught.own_right is not None  # the labels of the public set are known
    missed = taught.missed if taught is not None and labelled else None  # runs from before did not count them
    names = ["own\nheads", OF_THESE_RIGHT, "other\nclients", OF_THESE_RIGHT, "all\nright"]
    for name in [*names, "right one\nmissed"] if missed is not None else names:
        if labelled or "right" not in name:
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("other client\nchosen most", no_wrap=True)
    if taught is None:
        return table
    for head, (own, by_other) in enumerate(zip(taught.own, taught.others, strict=True)):
        others = sum(by_other)
        total = own + others
        cells = [share_text(own, total), share_text(others, total)]
        if taught.own_right is not None and taught.others_right is not None:
            own_right, others_right = taught.own_right[head], sum(taught.others_right[head])
            of_own, of_others = share_text(own_right, own), share_text(others_right, others)
            cells = [cells[0], of_own, cells[1], of_others, share_text(own_right + others_right, total)]
        if missed is not None:
            cells.append(share_text(missed[head], total))
        table.add_row(head_name(head + 1), *cells, _chosen_most(summary, by_other, total))
    return table


def _chosen_most(summary: Summary, by_teacher: Sequence[int], total: int) -> str:
    """Name the teacher that was chosen most, with its share: `client-3 (41.0)`; empty if none was."""
    most, _ = extremes(by_teacher)
    name = printable(summary.clients[most].name)
    return f"{name} ({share_text(by_teacher[most], total)})" if by_teacher[most] else ""


def taught_by_class_table(summary: Summary) -> Table:
    """Show whether clients that know a class teach it: a row per class or, for many classes, a row per teacher."""
    few = len(summary.classes) <= MAX_CLASSES
    return _taught_by_class(summary) if few else _taught_by_teacher(summary)


def _by_class(summary: Summary) -> tuple[list[list[int]], list[list[int]]]:
    """Return how often each teacher was chosen and how often it was right: teachers x classes, or empty lists."""
    taught = summary.taught
    return ([], []) if taught is None else (taught.chosen_by_class or [], taught.right_by_class or [])


def _taught_by_class(summary: Summary) -> Table:
    table = Table(title="Who taught each class, in % of its public samples (all students and heads)")
    table.add_column("class", overflow="fold")
    primary = any(client.primary_labels for client in summary.clients)
    if primary:
        table.add_column("primary\nclients", overflow="fold")
        for name in ("by\nthem", OF_THESE_RIGHT, "by\nothers", OF_THESE_RIGHT):
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("taught most by\n(in %)", no_wrap=True)
    table.add_column(OF_THESE_RIGHT, justify="right", no_wrap=True)
    chosen_by_class, right_by_class = _by_class(summary)
    numbers = [str(client) for client in range(len(summary.clients))]
    for label, name in enumerate(summary.classes if chosen_by_class else ()):
        chosen, right = ([counts[label] for counts in table] for table in (chosen_by_class, right_by_class))
        owners = [i for i, client in enumerate(summary.clients) if label in client.primary_labels]
        most, _ = extremes(chosen)
        by_owners = [labels_text(owners, numbers), *_shares(_own_and_other(chosen, right, owners), sum(chosen))]
        table.add_row(
            printable(name),
            *(by_owners if primary else ()),
            _chosen_most(summary, chosen, sum(chosen)),
            share_text(right[most], chosen[most]),
        )
    return table


def _taught_by_teacher(summary: Summary) -> Table:
    table = Table(title="What each client taught, in % of public samples (all students and heads)")
    table.add_column("teacher", no_wrap=True)
    for name in ("\nall", OF_THESE_RIGHT, "primary\nlabels", OF_THESE_RIGHT, "other\nlabels", OF_THESE_RIGHT):
        table.add_column(name, justify="right", no_wrap=True)
    chosen_by_class, right_by_class = _by_class(summary)
    counts = [
        _own_and_other(chosen, right, client.primary_labels)
        for client, chosen, right in zip(summary.clients, chosen_by_class, right_by_class, strict=False)
    ]
    total = sum(map(sum, chosen_by_class))
    rows = [(printable(client.name), own) for client, own in zip(summary.clients, counts, strict=False)]
    if len(counts) > MAX_ROWS:
        taught = [own + other for own, _, other, _ in counts]
        most, least = extremes(taught)
        means = tuple(mean(column) for column in zip(*counts, strict=True))
        table.add_row(f"mean of {len(counts)}", *_teacher_cells(means, total))
        table.add_row("std. deviation", percent(stdev(taught) / max(1, total)), *[""] * 5)
        rows = [(f"most: {rows[most][0]}", counts[most]), (f"least: {rows[least][0]}", counts[least])]
    for name, own in rows:
        table.add_row(name, *_teacher_cells(own, total))
    return table


def _teacher_cells(counts: Sequence[float], total: int) -> list[str]:
    own, own_right, other, other_right = counts
    taught, right = own + other, own_right + other_right
    return [share_text(taught, total), share_text(right, taught), *_shares(counts, total)]


def _own_and_other(chosen: Sequence[int], right: Sequence[int], own: Sequence[int]) -> tuple[int, int, int, int]:
    """Return how often the entries `own` were chosen and were right; the same for all other entries."""
    own_chosen, own_right = (sum(counts[entry] for entry in own) for counts in (chosen, right))
    return own_chosen, own_right, sum(chosen) - own_chosen, sum(right) - own_right


def _shares(counts: Sequence[float], total: int) -> list[str]:
    """Return the share chosen at some entries and how much of it was right; the same for all other entries."""
    own, own_right, other, other_right = counts
    return [
        share_text(own, total),
        share_text(own_right, own),
        share_text(other, total),
        share_text(other_right, other),
    ]

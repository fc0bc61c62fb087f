"""The table of the split: which client owns how many samples of each label."""

from collections.abc import Sequence
from statistics import mean, stdev

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.text import MAX_CLASSES, MAX_LENGTH, MAX_ROWS, extremes


def split_table(
    label_counts: Sequence[Sequence[int]],
    primary_labels: Sequence[Sequence[int]],
    class_names: Sequence[str],
    client_names: Sequence[str],
) -> Table:
    """Show private samples by client and label if they fit on a screen, otherwise by client only.

    For many clients show the mean, the spread, and those with the most and the fewest samples.
    """
    starred = " (* primary)" if any(primary_labels) else ""
    few = len(class_names) <= MAX_CLASSES and sum(map(len, class_names)) <= MAX_LENGTH
    table = Table(title="Private samples" + (f" by label{starred}" if few else ""))
    table.add_column("client", no_wrap=True)
    table.add_column("samples", justify="right")
    if few:
        for name in class_names:
            table.add_column(printable(name), justify="right")
    else:
        table.add_column("labels", justify="right")
        table.add_column("primary", justify="right")
        table.add_column("samples of\nprimary labels", justify="right")
    numbers = [_numbers(counts, primary, few) for counts, primary in zip(label_counts, primary_labels, strict=True)]
    rows = {client: printable(name) for client, name in enumerate(client_names)}
    if len(rows) > MAX_ROWS:
        columns = list(zip(*numbers, strict=True))
        table.add_row(f"mean of {len(rows)}", *(f"{mean(column):.0f}" for column in columns))
        table.add_row("std. deviation", *(f"{stdev(column):.0f}" for column in columns))
        most, fewest = extremes(columns[0])
        rows = {most: f"most: {rows[most]}", fewest: f"fewest: {rows[fewest]}"}
    for client, name in rows.items():
        table.add_row(name, *_cells(numbers[client], primary_labels[client], few))
    return table


def _numbers(counts: Sequence[int], primary: Sequence[int], few: bool) -> list[int]:
    """Return a number for each column: the samples of each class if there are few, otherwise totals."""
    if few:
        return [sum(counts), *counts]
    return [sum(counts), sum(count > 0 for count in counts), len(primary), sum(counts[label] for label in primary)]


def _cells(numbers: Sequence[int], primary: Sequence[int], few: bool) -> list[str]:
    samples, *others = numbers
    if few:
        return [str(samples), *(f"{count}{'*' if label in primary else ''}" for label, count in enumerate(others))]
    share = f"{others[2]} ({100 * others[2] / max(1, samples):.0f} %)" if primary else ""
    return [str(samples), str(others[0]), str(others[1]), share]


def primary_clients(primary_labels: Sequence[Sequence[int]], classes: int) -> list[tuple[int, int]]:
    """Return pairs (number of primary clients, number of labels with that many)."""
    owners = [sum(label in own for own in primary_labels) for label in range(classes)]
    return [(count, owners.count(count)) for count in sorted(set(owners))]

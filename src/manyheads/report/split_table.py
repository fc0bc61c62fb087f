"""The table of who owns what."""

from collections.abc import Sequence

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.text import MOST_CLASSES, MOST_LETTERS


def split_table(
    label_counts: Sequence[Sequence[int]],
    primary_labels: Sequence[Sequence[int]],
    class_names: Sequence[str],
    client_names: Sequence[str],
) -> Table:
    """Show who owns what: private samples by label if they fit on a screen, otherwise how many."""
    starred = " (* primary)" if any(primary_labels) else ""
    few = len(class_names) <= MOST_CLASSES and sum(map(len, class_names)) <= MOST_LETTERS
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
    for client, (counts, primary) in enumerate(zip(label_counts, primary_labels, strict=True)):
        if few:
            cells = [f"{count}{'*' if label in primary else ''}" for label, count in enumerate(counts)]
        else:
            own = sum(counts[label] for label in primary)
            share = f"{own} ({100 * own / max(1, sum(counts)):.0f} %)" if primary else ""
            cells = [str(sum(count > 0 for count in counts)), str(len(primary)), share]
        table.add_row(printable(client_names[client]), str(sum(counts)), *cells)
    return table


def primary_clients(primary_labels: Sequence[Sequence[int]], classes: int) -> list[tuple[int, int]]:
    """Return pairs (number of primary clients, number of labels with that many)."""
    owners = [sum(label in own for own in primary_labels) for label in range(classes)]
    return [(count, owners.count(count)) for count in sorted(set(owners))]

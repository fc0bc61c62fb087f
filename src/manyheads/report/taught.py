"""Tables of who taught whom."""

from collections.abc import Sequence

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.text import MOST_CLASSES, OF_THESE_RIGHT, Summary, head_name, labels_text, share_text


def taught_table(summary: Summary) -> Table:
    """Show how many samples each auxiliary head learned from its own client and from others, and how often rightly."""
    table = Table(title="Who taught each auxiliary head, in % of public samples")
    table.add_column("head", no_wrap=True)
    taught = summary.get("taught")
    judged = taught is None or taught["right"] is not None  # whether the labels of the public set are known
    for name in ("own\nheads", OF_THESE_RIGHT, "other\nclients", OF_THESE_RIGHT, "all\nright"):
        if judged or "right" not in name:
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("other client chosen\nmost (in % of samples)", no_wrap=True)
    if taught is None:
        return table
    for head in range(len(taught["chosen"][0])):
        chosen = [by_head[head] for by_head in taught["chosen"]]  # pupils x teachers
        total, own = sum(map(sum, chosen)), _diagonal(chosen)
        by_other = [sum(column) - column[teacher] for teacher, column in enumerate(zip(*chosen, strict=True))]
        cells = [share_text(own, total), share_text(total - own, total)]
        if judged:
            right = [by_head[head] for by_head in taught["right"]]
            all_right, own_right = sum(map(sum, right)), _diagonal(right)
            of_own, of_others = share_text(own_right, own), share_text(all_right - own_right, total - own)
            cells = [cells[0], of_own, cells[1], of_others, share_text(all_right, total)]
        table.add_row(head_name(head + 1), *cells, _chosen_most(summary, by_other, total))
    return table


def _diagonal(square: Sequence[Sequence[int]]) -> int:
    return sum(row[number] for number, row in enumerate(square))


def _chosen_most(summary: Summary, by_teacher: Sequence[int], total: int) -> str:
    """Name the teacher that was chosen most, with its share: `client-3 (41.0)`; empty if nobody was."""
    most = by_teacher.index(max(by_teacher))
    name = printable(summary["clients"][most]["name"])
    return f"{name} ({share_text(by_teacher[most], total)})" if by_teacher[most] else ""


def taught_by_class_table(summary: Summary) -> Table:
    """Show whether those teach who know: a row per class or, if there are many classes, a row per teacher."""
    few = len(summary["classes"]) <= MOST_CLASSES
    return _taught_by_class(summary) if few else _taught_by_teacher(summary)


def _taught_by_class(summary: Summary) -> Table:
    table = Table(title="Who taught each class, in % of its public samples (all pupils and heads)")
    table.add_column("class", overflow="fold")
    primary = any(client["primary_labels"] for client in summary["clients"])
    if primary:
        table.add_column("primary\nclients", overflow="fold")
        for name in ("by\nthem", OF_THESE_RIGHT, "by\nothers", OF_THESE_RIGHT):
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("taught most by\n(in %)", no_wrap=True)
    table.add_column(OF_THESE_RIGHT, justify="right", no_wrap=True)
    taught = summary.get("taught")
    if taught is None:
        return table
    numbers = [str(client) for client in range(len(summary["clients"]))]
    for label, name in enumerate(summary["classes"]):
        chosen, right = ([by_class[label] for by_class in taught[f"{key}_by_class"]] for key in ("chosen", "right"))
        owners = [i for i, client in enumerate(summary["clients"]) if label in client["primary_labels"]]
        most = chosen.index(max(chosen))
        by_owners = [labels_text(owners, numbers), *_own_and_other(chosen, right, owners, sum(chosen))]
        table.add_row(
            printable(name),
            *(by_owners if primary else ()),
            _chosen_most(summary, chosen, sum(chosen)),
            share_text(right[most], chosen[most]),
        )
    return table


def _taught_by_teacher(summary: Summary) -> Table:
    table = Table(title="What each client taught, in % of public samples (all pupils and heads)")
    table.add_column("teacher", no_wrap=True)
    for name in ("\nall", OF_THESE_RIGHT, "primary\nlabels", OF_THESE_RIGHT, "other\nlabels", OF_THESE_RIGHT):
        table.add_column(name, justify="right", no_wrap=True)
    taught = summary.get("taught")
    if taught is None:
        return table
    total = sum(map(sum, taught["chosen_by_class"]))
    for number, client in enumerate(summary["clients"]):
        chosen, right = taught["chosen_by_class"][number], taught["right_by_class"][number]
        table.add_row(
            printable(client["name"]),
            share_text(sum(chosen), total),
            share_text(sum(right), sum(chosen)),
            *_own_and_other(chosen, right, client["primary_labels"], total),
        )
    return table


def _own_and_other(chosen: Sequence[int], right: Sequence[int], own: Sequence[int], total: int) -> list[str]:
    """Return the share chosen at the entries `own` and how much of it was right; the same for all other entries."""
    own_chosen, own_right = (sum(counts[entry] for entry in own) for counts in (chosen, right))
    other_chosen, other_right = sum(chosen) - own_chosen, sum(right) - own_right
    return [
        share_text(own_chosen, total),
        share_text(own_right, own_chosen),
        share_text(other_chosen, total),
        share_text(other_right, other_chosen),
    ]

"""Tables of accuracies, from summaries."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from rich.markup import escape
from rich.table import Table

Summary = Mapping[str, Any]
TASKS = ("private", "shared")


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def head_name(head: int) -> str:
    return "main" if head == 0 else f"aux {head}"


def run_table(summary: Summary) -> Table:
    """Private and shared accuracy by head, for each client and on average."""
    table = Table(
        title=f"Test accuracy in % ({summary['algorithm']}, {summary['steps']} steps, seed {summary['seed']})"
    )
    for name in ("accuracy", "client", "samples", "primary labels"):
        table.add_column(name, justify="right" if name == "samples" else "left", no_wrap=name != "primary labels")
    _add_head_columns(table, len(summary["shared_accuracy"]))
    clients = summary["clients"]
    for task in TASKS:
        for number, client in enumerate(clients):
            table.add_row(
                task if number == 0 else "",
                client["name"],
                str(client["samples"]),
                labels_text(client["primary_labels"], summary["classes"]),
                *map(percent, client[f"{task}_accuracy"]),
            )
        samples = f"{mean(client['samples'] for client in clients):.0f}"
        table.add_row("", "mean", samples, "", *map(percent, summary[f"{task}_accuracy"]), end_section=True)
    return table


def _add_head_columns(table: Table, heads: int) -> None:
    for head in range(heads):
        table.add_column(head_name(head), justify="right", no_wrap=True)


def labels_text(labels: Sequence[int], names: Sequence[str], most: int = 5) -> str:
    """The labels by name where they are few, otherwise how many there are."""
    if len(labels) > most:
        return f"{len(labels)} of {len(names)}"
    return escape(", ".join(names[label] for label in labels))


def deploy_text(summary: Summary) -> str:
    """Which head to use for what."""
    deploy = summary["deploy"]
    if deploy is None:
        return "No head is recommended: data.validation_fraction is 0, and test data do not choose."
    return (
        f"On average, head {deploy['private']} ({head_name(deploy['private'])}) serves the private task best and "
        f"head {deploy['shared']} ({head_name(deploy['shared'])}) the shared one (chosen on validation data; "
        "summary.json and manyheads export say it for each client)."
    )


def collapse_text(collapsed: Sequence[Sequence[int]], class_names: Sequence[str]) -> list[str]:
    """A line for each head that says one class to nearly everything, with the clients it happened to."""
    lines = []
    for head in sorted({head for _, head, _ in collapsed}):
        found = [(client, label) for client, at, label in collapsed if at == head]
        clients = ", ".join(str(client) for client, _ in found)
        labels = ", ".join(sorted({class_names[label] for _, label in found}))
        advice = (
            "fewer auxiliary heads, or same_level / self_target off, may help" if head else "lower the learning rate"
        )
        lines.append(f"head {head} ({head_name(head)}) of client {clients} has collapsed onto class {labels}; {advice}")
    return lines


def compare_table(runs: Mapping[str, Sequence[Summary]]) -> Table:
    """Runs side by side, each with one summary or one per seed: accuracies by head, bytes and seconds."""
    heads = max(len(summaries[0]["shared_accuracy"]) for summaries in runs.values())
    several = any(len(summaries) > 1 for summaries in runs.values())
    table = Table(
        title="Test accuracy in %, mean over clients" + (" ± standard deviation over seeds" if several else "")
    )
    table.add_column("run", overflow="fold")
    for name in ("clients", "private\nmain", *(f"shared\n{head_name(head)}" for head in range(heads))):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("received\n(weights)", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, summaries in runs.items():
        columns = zip(*(summary["shared_accuracy"] for summary in summaries), strict=True)
        shared = [mean_and_spread(column) for column in columns]
        table.add_row(
            escape(name),
            str(len(summaries[0]["clients"])),
            mean_and_spread([summary["private_accuracy"][0] for summary in summaries]),
            *shared,
            *[""] * (heads - len(shared)),
            bytes_text(mean(mean(summary["bytes_received"]) for summary in summaries)),
            f"{mean(summary['seconds'] for summary in summaries):.1f}",
        )
    return table


def mean_and_spread(values: Sequence[float]) -> str:
    """`85.1`, or over several seeds `85.1 ± 4.6`."""
    return percent(mean(values)) + (f" ± {percent(stdev(values))}" if len(values) > 1 else "")


def bytes_text(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000.0:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000.0
    return f"{count:.1f} TB"


def seeds_table(summaries: Sequence[Summary]) -> Table:
    """Mean and spread (standard deviation) over seeds."""
    table = Table(
        title=escape(f"Test accuracy in %, mean over clients ({summaries[0]['algorithm']}, {len(summaries)} seeds)")
    )
    for name in ("accuracy", "seed"):
        table.add_column(name, no_wrap=True)
    _add_head_columns(table, len(summaries[0]["shared_accuracy"]))
    for task in TASKS:
        rows = [summary[f"{task}_accuracy"] for summary in summaries]
        for number, (summary, row) in enumerate(zip(summaries, rows, strict=True)):
            table.add_row(task if number == 0 else "", str(summary["seed"]), *map(percent, row))
        columns = list(zip(*rows, strict=True))
        table.add_row("", "mean", *[percent(mean(column)) for column in columns])
        spread = [percent(stdev(column)) if len(column) > 1 else "" for column in columns]
        table.add_row("", "std. deviation", *spread, end_section=True)
    return table


def split_table(
    label_counts: Sequence[Sequence[int]], primary_labels: Sequence[Sequence[int]], class_names: Sequence[str]
) -> Table:
    """Who owns what: private samples by label where they fit on a screen, otherwise their shape."""
    table = Table(title="Private samples" + (" by label (* primary)" if len(class_names) <= 20 else ""))
    table.add_column("client")
    table.add_column("samples", justify="right")
    if len(class_names) <= 20:
        for name in class_names:
            table.add_column(escape(name), justify="right")
    else:
        table.add_column("labels", justify="right")
        table.add_column("primary", justify="right")
        table.add_column("samples of\nprimary labels", justify="right")
    for client, (counts, primary) in enumerate(zip(label_counts, primary_labels, strict=True)):
        if len(class_names) <= 20:
            cells = [f"{count}{'*' if label in primary else ''}" for label, count in enumerate(counts)]
        else:
            own = sum(counts[label] for label in primary)
            share = f"{own} ({100 * own / max(1, sum(counts)):.0f} %)" if primary else ""
            cells = [str(sum(count > 0 for count in counts)), str(len(primary)), share]
        table.add_row(f"client-{client}", str(sum(counts)), *cells)
    return table


def primary_clients(primary_labels: Sequence[Sequence[int]], classes: int) -> list[tuple[int, int]]:
    """(number of primary clients, labels that have so many)."""
    owners = [sum(label in own for own in primary_labels) for label in range(classes)]
    return [(count, owners.count(count)) for count in sorted(set(owners))]

"""Tables of accuracies, from summaries."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.sentences import prior_text, probe_text
from manyheads.report.text import (
    MAX_ROWS,
    TASKS,
    accuracy,
    bytes_text,
    extremes,
    head_name,
    labels_text,
    mean_and_spread,
    method_text,
    percent,
)
from manyheads.runs.summary import Judged, Summary


def run_table(summary: Summary) -> Table:
    """Show private and shared accuracy by head, for each client and on average, with the probe's bound below.

    For many clients show the mean, the spread, and the best and the worst client by the head meant for the task.
    """
    many = len(summary.clients) > MAX_ROWS
    notes = (_extremes_text(summary) if many else None, prior_text(summary), probe_text(summary))
    table = Table(
        title=f"Test accuracy in % ({method_text(summary)}, {summary.steps} steps, seed {summary.seed})",
        caption="\n".join(filter(None, notes)) or None,
        caption_justify="left",
    )
    for name in ("accuracy", "client", "samples", "primary labels"):
        table.add_column(name, justify="right" if name == "samples" else "left", no_wrap=name != "primary labels")
    _add_head_columns(table, len(summary.shared_accuracy))
    extra = _extra_columns(summary)
    for name in extra:
        table.add_column(name, justify="right" if name == "received" else "left", no_wrap=True)
    for task in TASKS:
        rows = list(_rows_of_many(summary, task, extra) if many else _rows_of_few(summary, task, extra))
        for number, row in enumerate(rows):
            table.add_row(task if number == 0 else "", *row, end_section=number == len(rows) - 1)
    return table


Columns = Mapping[str, Mapping[str, Sequence[str]]]  # column -> task -> a cell per client, and one for the mean


def _rows_of_few(summary: Summary, task: str, extra: Columns) -> Iterator[list[str]]:
    for number in range(len(summary.clients)):
        yield _client_row(summary, number, task, extra)
    yield _mean_row(summary, "mean", task, extra)


def _rows_of_many(summary: Summary, task: str, extra: Columns) -> Iterator[list[str]]:
    clients = summary.clients
    judged = [accuracy(client, task) for client in clients]
    best, worst = extremes([by_head[_head_for(task)] for by_head in judged])
    yield _mean_row(summary, f"mean of {len(clients)}", task, extra)
    spread = [percent(stdev(column)) for column in zip(*judged, strict=True)]
    samples = f"{stdev(client.samples for client in clients):.0f}"
    yield ["std. deviation", samples, "", *spread, *[""] * len(extra)]
    yield _client_row(summary, best, task, extra, "best: ")
    yield _client_row(summary, worst, task, extra, "worst: ")


def _head_for(task: str) -> int:
    """Return the head meant for a task: the main head for the private one, the last head for the shared one."""
    return 0 if task == "private" else -1


def _extremes_text(summary: Summary) -> str:
    last = head_name(len(summary.shared_accuracy) - 1)
    return f"Best and worst: by private accuracy of main, by shared accuracy of {last}; summary.json has all clients."


def _client_row(summary: Summary, number: int, task: str, extra: Columns, label: str = "") -> list[str]:
    client = summary.clients[number]
    return [
        label + printable(client.name),
        str(client.samples),
        labels_text(client.primary_labels, summary.classes),
        *map(percent, accuracy(client, task)),
        *(cells[task][number] for cells in extra.values()),
    ]


def _mean_row(summary: Summary, label: str, task: str, extra: Columns) -> list[str]:
    samples = f"{mean(client.samples for client in summary.clients):.0f}"
    means = map(percent, accuracy(summary, task))
    return [label, samples, "", *means, *(cells[task][-1] for cells in extra.values())]


def _extra_columns(summary: Summary) -> Columns:
    """Return the further columns of `run_table` that are worth showing."""
    columns: dict[str, dict[str, list[str]]] = {}
    received = summary.bytes_received
    if any(received):
        texts = [bytes_text(count) for count in (*received, mean(received))]
        columns["received"] = {"private": texts, "shared": [""] * len(texts)}
    models = [(client.backbone, client.width) for client in summary.clients]
    if len(set(models)) > 1:
        texts = [printable(str(backbone)) + (f" ({width})" if width else "") for backbone, width in models]
        columns["backbone\n(width)"] = {task: [*texts, ""] for task in TASKS}
    return columns


def _add_head_columns(table: Table, heads: int) -> None:
    for head in range(heads):
        table.add_column(head_name(head), justify="right", no_wrap=True)


def hop_table(summary: Summary) -> Table:
    """Show accuracy by head on the private distributions of clients that many hops away, averaged over pairs."""
    table = Table(title="Test accuracy in % on private data of clients that many hops away", min_width=40)
    table.add_column("hops", no_wrap=True)
    _add_head_columns(table, len(summary.shared_accuracy))
    rows = list((summary.by_hop or {}).items())
    for number, (away, by_head) in enumerate(rows):
        own = "0 (own group)" if summary.groups else "0 (own)"
        if number < MAX_ROWS - 2 or number >= len(rows) - 2:  # of many rows the first and the last
            table.add_row(own if away == "0" else away, *map(percent, by_head))
        elif number == MAX_ROWS - 2:
            table.add_row("...", *[""] * len(by_head))
    return table


def compare_table(runs: Mapping[str, Sequence[Summary]]) -> Table:
    """Show runs side by side, each with one summary or one per seed: accuracies by head, bytes and seconds."""
    heads = max(len(summaries[0].shared_accuracy) for summaries in runs.values())
    several = any(len(summaries) > 1 for summaries in runs.values())
    table = Table(
        title="Test accuracy in %, mean over clients" + (" ± standard deviation over seeds" if several else "")
    )
    table.add_column("run", overflow="fold", min_width=6)
    table.add_column("clients", justify="right", no_wrap=True)
    for name in ("private\nmain", *(f"shared\n{head_name(head)}" for head in range(heads))):
        # On a narrow screen the spread goes onto a second line.
        table.add_column(name, justify="right", min_width=len(name.split("\n")[0]))
    for name in ("received\nper client", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, summaries in runs.items():
        clients = str(len(summaries[0].clients))
        received = bytes_text(mean(mean(summary.bytes_received) for summary in summaries))
        seconds = f"{mean(summary.seconds for summary in summaries):.1f}"
        for state in summaries[0].after or (None,):  # an algorithm may be evaluated in several states
            judged: Sequence[Judged] = summaries if state is None else [summary.after[state] for summary in summaries]
            title = printable(name) + (f" (after {printable(state)})" if state else "")
            table.add_row(title, clients, *_accuracy_cells(judged, heads), received, seconds)
    return table


def _accuracy_cells(summaries: Sequence[Judged], heads: int) -> list[str]:
    """Return private accuracy of the main head and shared accuracy of each head; empty for heads of other runs."""
    columns = zip(*(summary.shared_accuracy for summary in summaries), strict=True)
    shared = [mean_and_spread(column) for column in columns]
    private = mean_and_spread([summary.private_task[0] for summary in summaries])
    return [private, *shared, *[""] * (heads - len(shared))]


def seeds_table(summaries: Sequence[Summary]) -> Table:
    """Show every seed, and mean and standard deviation over seeds."""
    table = Table(title=f"Test accuracy in %, mean over clients ({summaries[0].algorithm}, {len(summaries)} seeds)")
    for name in ("accuracy", "seed"):
        table.add_column(name, no_wrap=True)
    _add_head_columns(table, len(summaries[0].shared_accuracy))
    for task in TASKS:
        rows = [accuracy(summary, task) for summary in summaries]
        for number, (summary, row) in enumerate(zip(summaries, rows, strict=True)):
            table.add_row(task if number == 0 else "", str(summary.seed), *map(percent, row))
        columns = list(zip(*rows, strict=True))
        table.add_row("", "mean", *[percent(mean(column)) for column in columns])
        spread = [percent(stdev(column)) if len(column) > 1 else "" for column in columns]
        table.add_row("", "std. deviation", *spread, end_section=True)
    return table

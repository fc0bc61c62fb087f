"""Tables of accuracies, from summaries."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.sentences import probe_text
from manyheads.report.text import TASKS, Summary, bytes_text, head_name, labels_text, mean_and_spread, percent, what


def run_table(summary: Summary) -> Table:
    """Show private and shared accuracy by head, for each client and on average, with the probe's bound below."""
    table = Table(
        title=f"Test accuracy in % ({what(summary)}, {summary['steps']} steps, seed {summary['seed']})",
        caption=probe_text(summary),
        caption_justify="left",
    )
    for name in ("accuracy", "client", "samples", "primary labels"):
        table.add_column(name, justify="right" if name == "samples" else "left", no_wrap=name != "primary labels")
    _add_head_columns(table, len(summary["shared_accuracy"]))
    beside = _beside(summary)
    for name in beside:
        table.add_column(name, justify="right" if name == "received" else "left", no_wrap=True)
    clients = summary["clients"]
    for task in TASKS:
        for number, client in enumerate(clients):
            table.add_row(
                task if number == 0 else "",
                printable(client["name"]),
                str(client["samples"]),
                labels_text(client["primary_labels"], summary["classes"]),
                *map(percent, client[f"{task}_accuracy"]),
                *(cells[task][number] for cells in beside.values()),
            )
        samples = f"{mean(client['samples'] for client in clients):.0f}"
        means = [*map(percent, summary[f"{task}_accuracy"]), *(cells[task][-1] for cells in beside.values())]
        table.add_row("", "mean", samples, "", *means, end_section=True)
    return table


def _beside(summary: Summary) -> dict[str, dict[str, list[str]]]:
    """Return further columns of `run_table` that are worth showing: by task, a cell per client and one for the mean."""
    columns: dict[str, dict[str, list[str]]] = {}
    received = summary["bytes_received"]
    if any(received):
        texts = [bytes_text(count) for count in (*received, mean(received))]
        columns["received"] = {"private": texts, "shared": [""] * len(texts)}
    models = [(client.get("backbone"), client.get("width")) for client in summary["clients"]]
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
    _add_head_columns(table, len(summary["shared_accuracy"]))
    for away, by_head in (summary.get("by_hop") or {}).items():
        own = "0 (own group)" if summary.get("groups") else "0 (own)"
        table.add_row(own if away == "0" else away, *map(percent, by_head))
    return table


def compare_table(runs: Mapping[str, Sequence[Summary]]) -> Table:
    """Show runs side by side, each with one summary or one per seed: accuracies by head, bytes and seconds."""
    heads = max(len(summaries[0]["shared_accuracy"]) for summaries in runs.values())
    several = any(len(summaries) > 1 for summaries in runs.values())
    table = Table(
        title="Test accuracy in %, mean over clients" + (" ± standard deviation over seeds" if several else "")
    )
    table.add_column("run", overflow="fold", min_width=6)
    table.add_column("clients", justify="right", no_wrap=True)
    for name in ("private\nmain", *(f"shared\n{head_name(head)}" for head in range(heads))):
        # On a narrow screen the spread goes to a second line.
        table.add_column(name, justify="right", min_width=len(name.split("\n")[0]))
    for name in ("received\nper client", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, summaries in runs.items():
        clients = str(len(summaries[0]["clients"]))
        received = bytes_text(mean(mean(summary["bytes_received"]) for summary in summaries))
        seconds = f"{mean(summary['seconds'] for summary in summaries):.1f}"
        for state in summaries[0].get("after") or (None,):  # an algorithm may be evaluated in several states
            judged = summaries if state is None else [summary["after"][state] for summary in summaries]
            title = printable(name) + (f" (after {state})" if state else "")
            table.add_row(title, clients, *_accuracy_cells(judged, heads), received, seconds)
    return table


def _accuracy_cells(summaries: Sequence[Summary], heads: int) -> list[str]:
    """Return private accuracy of the main head and shared accuracy of each head; empty for heads of other runs."""
    columns = zip(*(summary["shared_accuracy"] for summary in summaries), strict=True)
    shared = [mean_and_spread(column) for column in columns]
    private = mean_and_spread([summary["private_accuracy"][0] for summary in summaries])
    return [private, *shared, *[""] * (heads - len(shared))]


def seeds_table(summaries: Sequence[Summary]) -> Table:
    """Show every seed, and mean and standard deviation over seeds."""
    table = Table(title=f"Test accuracy in %, mean over clients ({summaries[0]['algorithm']}, {len(summaries)} seeds)")
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

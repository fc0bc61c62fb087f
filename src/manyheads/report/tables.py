"""Tables of accuracies, from summaries."""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.markup import escape
from rich.table import Table

Summary = Mapping[str, Any]
TASKS = ("private", "shared")
MOST_CLASSES = 20  # more have no row or column of their own
MOST_LETTERS = 100  # of the names of classes that stand side by side
OF_THESE_RIGHT = "of these\nright"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def head_name(head: int) -> str:
    return "main" if head == 0 else f"aux {head}"


def run_table(summary: Summary) -> Table:
    """Private and shared accuracy by head, for each client and on average; the probe's bound in a line below."""
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
                client["name"],
                str(client["samples"]),
                labels_text(client["primary_labels"], summary["classes"]),
                *map(percent, client[f"{task}_accuracy"]),
                *(cells[task][number] for cells in beside.values()),
            )
        samples = f"{mean(client['samples'] for client in clients):.0f}"
        means = [*map(percent, summary[f"{task}_accuracy"]), *(cells[task][-1] for cells in beside.values())]
        table.add_row("", "mean", samples, "", *means, end_section=True)
    return table


def what(summary: Summary) -> str:
    """`averaging, cycle`: the algorithm, and the graph where there is one."""
    return ", ".join(str(summary[key]) for key in ("algorithm", "graph") if summary.get(key))


def _beside(summary: Summary) -> dict[str, dict[str, list[str]]]:
    """Further columns of `run_table`, where they say something: by task, a cell per client and one for the mean."""
    columns: dict[str, dict[str, list[str]]] = {}
    received = summary["bytes_received"]
    if any(received):
        texts = [bytes_text(count) for count in (*received, mean(received))]
        columns["received"] = {"private": texts, "shared": [""] * len(texts)}
    models = [(client.get("backbone"), client.get("width")) for client in summary["clients"]]
    if len(set(models)) > 1:
        texts = [escape(str(backbone)) + (f" ({width})" if width else "") for backbone, width in models]
        columns["backbone\n(width)"] = {task: [*texts, ""] for task in TASKS}
    return columns


def probe_text(summary: Summary) -> str | None:
    """What the embeddings would allow: mean and range over clients."""
    probe = summary.get("probe")
    if not probe:
        return None
    spread = f" ({percent(min(probe))} to {percent(max(probe))})" if len(probe) > 1 else ""
    return (
        f"The embedding allows about {percent(mean(probe))}{spread} % shared accuracy: what a new linear head on it, "
        "frozen, reaches with the private data of all clients."
    )


def _add_head_columns(table: Table, heads: int) -> None:
    for head in range(heads):
        table.add_column(head_name(head), justify="right", no_wrap=True)


def labels_text(labels: Sequence[int], names: Sequence[str], most: int = 5) -> str:
    """The labels by name where they are few, otherwise how many there are."""
    if len(labels) > most:
        return f"{len(labels)} of {len(names)}"
    return escape(", ".join(names[label] for label in labels))


def doubt_text(summary: Summary) -> str | None:
    """Where the last head knows less than the main one: that distillation did not help, and what may."""
    shared = (summary.get("validation") or summary)["shared_accuracy"]
    if len(shared) == 1 or shared[-1] >= shared[0]:
        return None
    return (
        f"Distillation did not help here: the last head knows {percent(shared[-1])} % of all classes, the main head "
        f"{percent(shared[0])} %. Too few steps, too sure teachers ({summary['algorithm']}: try "
        "algorithm.confidence=density, or look at who taught whom), or too few public samples?"
    )


def deploy_text(summary: Summary) -> str:
    """Which head to use for what."""
    deploy = summary["deploy"]
    if deploy is None:
        return "No head is recommended, because test data do not choose: data.validation_fraction = 0.1 would tell."
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


def after_text(summary: Summary) -> list[str]:
    """Where an algorithm is judged in several states: a line for each, of means over clients."""
    return [
        f"after {state}: private{_of_head(judged, 0)} {percent(judged['private_accuracy'][0])} %, "
        f"shared{_of_head(judged, -1)} {percent(judged['shared_accuracy'][-1])} %"
        for state, judged in (summary.get("after") or {}).items()
    ]


def time_text(summary: Summary) -> str:
    """Where the time went: one line."""
    time, whole = summary["time"], summary["seconds"]
    parts = [(name, seconds) for name, seconds in time.items() if name != "data"]
    parts.append(("the rest", max(0.0, whole - sum(seconds for _, seconds in parts))))
    said = [f"{name} {seconds:.1f} s ({seconds / whole:.0%})" for name, seconds in parts]
    said[0] += f", of which drawing and gathering batches {time['data']:.1f} s"
    return f"Where the time went: {'; '.join(said)}."


def _of_head(judged: Summary, head: int) -> str:
    heads = len(judged["shared_accuracy"])
    return f" ({head_name(head % heads)})" if heads > 1 else ""


def hop_table(summary: Summary) -> Table:
    """Accuracy by head on the private distributions of clients so many hops away, a mean over pairs of clients."""
    table = Table(title="Test accuracy in % on private data of clients so many hops away", min_width=40)
    table.add_column("hops", no_wrap=True)
    _add_head_columns(table, len(summary["shared_accuracy"]))
    for away, by_head in (summary.get("by_hop") or {}).items():
        own = "0 (own group)" if summary.get("groups") else "0 (own)"
        table.add_row(own if away == "0" else away, *map(percent, by_head))
    return table


def taught_table(summary: Summary) -> Table:
    """For each auxiliary head: how many samples its own client and its peers taught it, and how often rightly."""
    table = Table(title="Who taught each auxiliary head, in % of public samples")
    table.add_column("head", no_wrap=True)
    taught = summary.get("taught")
    judged = taught is None or taught["right"] is not None  # whether the labels of the public set are known
    for name in ("own\nheads", OF_THESE_RIGHT, "\npeers", OF_THESE_RIGHT, "all\nright"):
        if judged or "right" not in name:
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("peer chosen most\n(in % of samples)", no_wrap=True)
    if taught is None:
        return table
    for head in range(len(taught["chosen"][0])):
        chosen = [by_head[head] for by_head in taught["chosen"]]  # pupils x teachers
        total, own = sum(map(sum, chosen)), _diagonal(chosen)
        by_peer = [sum(column) - column[teacher] for teacher, column in enumerate(zip(*chosen, strict=True))]
        cells = [share_text(own, total), share_text(total - own, total)]
        if judged:
            right = [by_head[head] for by_head in taught["right"]]
            all_right, own_right = sum(map(sum, right)), _diagonal(right)
            of_own, of_peers = share_text(own_right, own), share_text(all_right - own_right, total - own)
            cells = [cells[0], of_own, cells[1], of_peers, share_text(all_right, total)]
        table.add_row(head_name(head + 1), *cells, _chosen_most(summary, by_peer, total))
    return table


def _diagonal(square: Sequence[Sequence[int]]) -> int:
    return sum(row[number] for number, row in enumerate(square))


def share_text(part: float, whole: float) -> str:
    """In percent; nothing where there is no whole."""
    return percent(part / whole) if whole else ""


def _chosen_most(summary: Summary, by_teacher: Sequence[int], total: int) -> str:
    """`client-3 (41.0)`: the teacher that was chosen most and its share; nothing where nobody was."""
    most = by_teacher.index(max(by_teacher))
    return f"{summary['clients'][most]['name']} ({share_text(by_teacher[most], total)})" if by_teacher[most] else ""


def taught_by_class_table(summary: Summary) -> Table:
    """Whether those teach who know: a row per class or, where classes are many, a row per teacher."""
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
            escape(name),
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
            client["name"],
            share_text(sum(chosen), total),
            share_text(sum(right), sum(chosen)),
            *_own_and_other(chosen, right, client["primary_labels"], total),
        )
    return table


def _own_and_other(chosen: Sequence[int], right: Sequence[int], own: Sequence[int], total: int) -> list[str]:
    """The share chosen at the entries `own` and how much of it was right; the same for all other entries."""
    own_chosen, own_right = (sum(counts[entry] for entry in own) for counts in (chosen, right))
    other_chosen, other_right = sum(chosen) - own_chosen, sum(right) - own_right
    return [
        share_text(own_chosen, total),
        share_text(own_right, own_chosen),
        share_text(other_chosen, total),
        share_text(other_right, other_chosen),
    ]


def compare_table(runs: Mapping[str, Sequence[Summary]]) -> Table:
    """Runs side by side, each with one summary or one per seed: accuracies by head, bytes and seconds."""
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
        for state in summaries[0].get("after") or (None,):  # an algorithm may be judged in several states
            judged = summaries if state is None else [summary["after"][state] for summary in summaries]
            title = escape(name) + (f" (after {state})" if state else "")
            table.add_row(title, clients, *_accuracy_cells(judged, heads), received, seconds)
    return table


def differences_text(keys: Mapping[str, Mapping[str, object]]) -> list[str]:
    """A line per run on the keys in which they differ: `one: graph.name = "cycle"`. Those that only one algorithm has
    go without saying."""

    def differ(key: str) -> bool:
        values = [own[key] for own in keys.values() if key in own]
        return any(value != values[0] for value in values)

    lines = {name: keys_text({key: own[key] for key in own if differ(key)}) for name, own in keys.items()}
    return [f"{name}: {line}" for name, line in lines.items() if line]


def keys_text(keys: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {textwrap.shorten(json.dumps(value), MOST_LETTERS)}" for key, value in keys.items())


def _accuracy_cells(summaries: Sequence[Summary], heads: int) -> list[str]:
    """Private accuracy of the main head, shared accuracy of each head, and nothing for heads that others have."""
    columns = zip(*(summary["shared_accuracy"] for summary in summaries), strict=True)
    shared = [mean_and_spread(column) for column in columns]
    private = mean_and_spread([summary["private_accuracy"][0] for summary in summaries])
    return [private, *shared, *[""] * (heads - len(shared))]


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
    label_counts: Sequence[Sequence[int]],
    primary_labels: Sequence[Sequence[int]],
    class_names: Sequence[str],
    client_names: Sequence[str],
) -> Table:
    """Who owns what: private samples by label where they fit on a screen, otherwise their shape."""
    starred = " (* primary)" if any(primary_labels) else ""
    few = len(class_names) <= MOST_CLASSES and sum(map(len, class_names)) <= MOST_LETTERS
    table = Table(title="Private samples" + (f" by label{starred}" if few else ""))
    table.add_column("client", no_wrap=True)
    table.add_column("samples", justify="right")
    if few:
        for name in class_names:
            table.add_column(escape(name), justify="right")
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
        table.add_row(escape(client_names[client]), str(sum(counts)), *cells)
    return table


def packed_text(card: Mapping[str, Any], out: Path) -> str:
    """`packed: train 50,000, test 10,000 images of 64 x 64 x 3, 0.74 GB`."""
    parts = card["parts"]
    counts = ", ".join(f"{name} {part.get('kept', part['images'])[0]:,}" for name, part in parts.items())
    size = " x ".join(str(side) for side in parts["train"]["images"][1:])
    total = sum(math.prod(part["images"]) for part in parts.values())
    return f'{out}: {counts} images of {size}, {bytes_text(total)}; use it as: source = "packed", path = "{out}"'


def unreadable_text(card: Mapping[str, Any], out: Path) -> list[str]:
    """What was left out, in one line."""
    lost = card["unreadable"]
    if not lost:
        return []
    return [
        f"{len(lost)} image(s) could not be read and are left out; all are listed in {out / 'pack.json'}; "
        f"the first: {lost[0]['image']}: {lost[0]['why']}"
    ]


def primary_clients(primary_labels: Sequence[Sequence[int]], classes: int) -> list[tuple[int, int]]:
    """(number of primary clients, labels that have so many)."""
    owners = [sum(label in own for own in primary_labels) for label in range(classes)]
    return [(count, owners.count(count)) for count in sorted(set(owners))]

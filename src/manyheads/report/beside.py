"""Is it worth joining? The same clients alone and together, at the heads that each client would use."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from rich.table import Table

from manyheads.printable import printable
from manyheads.report.advice import RunSettings, advice_text
from manyheads.report.text import MAX_ROWS, TASKS, bytes_text, extremes, mean_and_spread, names_text, percent
from manyheads.runs.summary import ClientSummary, Summary

A_POINT = 1.0  # a client that loses more than this on its own task loses; a mean that falls by more is not worth it


@dataclass(frozen=True)
class Change:
    """An accuracy alone and together, by seed."""

    alone: tuple[float, ...]
    together: tuple[float, ...]

    @property
    def gains(self) -> tuple[float, ...]:
        """The gain of each seed, in points."""
        return tuple(100 * (after - before) for before, after in zip(self.alone, self.together, strict=True))

    @property
    def points(self) -> float:
        """The mean gain in points, rounded as it is shown, so that sentences say what tables show.

        >>> Change(alone=(0.5, 0.6), together=(0.7, 0.7)).points
        15.0
        """
        return round(mean(self.gains), 1) + 0.0  # no -0.0

    @property
    def error(self) -> float:
        """Two standard errors of the mean gain over seeds, in points; zero for one seed."""
        return 2 * stdev(self.gains) / math.sqrt(len(self.gains)) if len(self.gains) > 1 else 0.0

    def cells(self) -> list[str]:
        """Return `alone`, `together` and the gain as text."""
        spread = f" ± {stdev(self.gains):.1f}" if len(self.gains) > 1 else ""
        return [mean_and_spread(self.alone), mean_and_spread(self.together), f"{self.points:+.1f}{spread}"]

    def __str__(self) -> str:
        return f"{self.points:+.1f} points ({percent(mean(self.alone))} -> {percent(mean(self.together))} %)"


def recommended_accuracy(client: ClientSummary | Summary, task: str) -> float:
    """Return the test accuracy at the head that was recommended for a task, to a client or on average.

    Without a validation part it is the main head for the private task, and the last head for the shared one.
    """
    deploy = client.deploy
    if task == "shared":
        return client.shared_accuracy[-1 if deploy is None else deploy.shared]
    if deploy is None:
        return client.private_task[0]
    return (client.private_task if deploy.prior else client.private_accuracy)[deploy.private]


def changes_by_client(alone: Sequence[Summary], together: Sequence[Summary], task: str) -> list[Change]:
    """Return the change of each client; both sequences hold a summary per seed."""

    def by_client(summaries: Sequence[Summary]) -> list[tuple[float, ...]]:
        every = [[recommended_accuracy(client, task) for client in summary.clients] for summary in summaries]
        return list(zip(*every, strict=True))

    return [Change(*both) for both in zip(by_client(alone), by_client(together), strict=True)]


def mean_change(changes: Sequence[Change]) -> Change:
    """Return the change of the mean over clients, by seed."""
    alone, together = ([change.alone for change in changes], [change.together for change in changes])
    return Change(tuple(map(mean, zip(*alone, strict=True))), tuple(map(mean, zip(*together, strict=True))))


def gain_table(alone: Sequence[Summary], together: Sequence[Summary]) -> Table:
    """Show what each client has alone, together, and gains, at its own task and at everybody's.

    For many clients show the mean, the spread, and who gains most and least at its own task.
    """
    clients, seeds = together[0].clients, len(together)
    over = f", ± over {seeds} seeds" if seeds > 1 else ""
    title = f"Test accuracy in % alone ({alone[0].algorithm}) and together ({together[0].algorithm})"
    table = Table(title=title + over, caption=heads_text(alone, together), caption_justify="left")
    table.add_column("client", overflow="fold", min_width=6)
    table.add_column("samples", justify="right", no_wrap=True)
    for task in TASKS:
        for name in ("alone", "together", "gain"):  # on a narrow screen the spread goes onto a second line
            table.add_column(f"{task}\n{name}", justify="right", min_width=len(name))
    changes = {task: changes_by_client(alone, together, task) for task in TASKS}

    def row(name: str, samples: float, of_tasks: Mapping[str, Change]) -> list[str]:
        return [printable(name), f"{samples:.0f}", *(cell for change in of_tasks.values() for cell in change.cells())]

    samples = [mean(summary.clients[number].samples for summary in together) for number in range(len(clients))]
    rows = [
        row(client.name, samples[number], {task: own[number] for task, own in changes.items()})
        for number, client in enumerate(clients)
    ]
    if len(clients) > MAX_ROWS:
        most, least = extremes([change.points for change in changes["private"]])
        rows[most][0], rows[least][0] = f"gains most: {rows[most][0]}", f"gains least: {rows[least][0]}"
        spread = [_spread_over_clients(changes[task]) for task in TASKS]
        rows = [["std. deviation", f"{stdev(samples):.0f}", *spread[0], *spread[1]], rows[most], rows[least]]
    for number, cells in enumerate(rows):
        table.add_row(*cells, end_section=number == len(rows) - 1)
    means = {task: mean_change(own) for task, own in changes.items()}
    table.add_row(*row(f"mean of {len(clients)}", mean(samples), means))
    return table


def _spread_over_clients(changes: Sequence[Change]) -> list[str]:
    columns = ([mean(change.alone) for change in changes], [mean(change.together) for change in changes])
    return [*(percent(stdev(column)) for column in columns), f"{stdev(change.points for change in changes):.1f}"]


def heads_text(*ways: Sequence[Summary]) -> str:
    """Say at which heads accuracies are measured."""
    if all(client.deploy is not None for way in ways for summary in way for client in summary.clients):
        return "At the heads that validation data recommend to each client; private: its own task, shared: all's."
    return (
        "There is no validation part to choose heads on, so these are the main head for the private task and the last "
        "one for the shared; data.validation_fraction = 0.1 lets each client choose."
    )


def ways_table(runs: Mapping[str, Sequence[Summary]], missing: Mapping[str, str]) -> Table:
    """Show all ways side by side, means over clients, and why a way is missing."""
    seeds = max(len(summaries) for summaries in runs.values())
    over = f", ± over {seeds} seeds" if seeds > 1 else ""
    clients = [len(summaries[0].clients) for summaries in runs.values()]
    pooled = [name for name, summaries in runs.items() if len(summaries[0].clients) != clients[0]]
    table = Table(
        title=f"Test accuracy in % by way{over}",
        caption=f"{', '.join(pooled)}: one model with the private data of all, so no task of its own."
        if pooled
        else None,
        caption_justify="left",
    )
    table.add_column("way", overflow="fold", min_width=6)
    for name in ("private", "shared", "received\nper client"):
        table.add_column(name, justify="right", min_width=len(name.split("\n")[0]))
    if missing:
        table.add_column("missing because", overflow="fold")
    last = [""] if missing else []
    for name, summaries in runs.items():
        by_seed = {task: [_mean_over_clients(summary, task) for summary in summaries] for task in TASKS}
        private = "" if name in pooled else mean_and_spread(by_seed["private"])
        received = bytes_text(mean(mean(summary.bytes_received) for summary in summaries))
        table.add_row(printable(name), private, mean_and_spread(by_seed["shared"]), received, *last)
    for name, why in missing.items():
        table.add_row(printable(name), "", "", "", printable(why))
    return table


def _mean_over_clients(summary: Summary, task: str) -> float:
    return mean(recommended_accuracy(client, task) for client in summary.clients)


def worth_text(alone: Sequence[Summary], together: Sequence[Summary], settings: RunSettings) -> str:
    """Say whether it is worth joining, with the numbers of `gain_table`, and if not, what to change first."""
    changes = {task: changes_by_client(alone, together, task) for task in TASKS}
    private, shared = (mean_change(changes[task]) for task in TASKS)
    names = [client.name for client in together[0].clients]
    worth = shared.points > 0.0 and private.points >= -max(A_POINT, private.error)
    verdict = ("May be worth" if shared.points < shared.error else "Worth") if worth else "Not worth"
    gain, gain_own = (_gaining(changes[task]) for task in reversed(TASKS))
    losing = [name for name, change in zip(names, changes["private"], strict=True) if change.points < -A_POINT]
    lose = f"{len(losing)} lose{'s' if len(losing) == 1 else ''} more than a point ({names_text(losing, 5)})"
    said = (
        f"{verdict} joining with these settings: on average a client's accuracy changes by "
        f"{shared}{_by_chance(shared)} on everybody's task, and by {private}{_by_chance(private)} on its own. Of "
        f"{len(names)} clients, {gain} on everybody's task; on their own task {gain_own} and "
        f"{lose if losing else 'none loses more than a point'}."
    )
    return said if worth else f"{said} Change first: {advice_text(settings)}."


def _gaining(changes: Sequence[Change]) -> str:
    number = sum(change.points > 0.0 for change in changes)
    return f"{number or 'none'} gain{'' if number > 1 else 's'}"


def _by_chance(change: Change) -> str:
    """Say of a gain that is smaller than two standard errors over seeds that it may be chance."""
    return f", within two standard errors ({change.error:.1f})," if abs(change.points) < change.error else ""

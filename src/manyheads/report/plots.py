"""The pictures of a run folder, drawn from its events."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from manyheads.errors import RunError
from manyheads.files import refuse_link
from manyheads.report.figures import accuracy_figure, losses_figure, plain_text, save_figure
from manyheads.report.relations_figures import hops_figure, matrix_figure, taught_figure
from manyheads.report.split_figure import split_figure
from manyheads.runs.events import Event, StartEvent, TaughtEvent, on_test_set
from manyheads.runs.read import read_events, read_relations
from manyheads.runs.relations import Relations


def plot_run(folder: str | Path) -> list[Path]:
    """Draw accuracy, losses and the split into `plots/`, and return the files.

    If the run measured them, also draw accuracy by hops, accuracy by pairs of clients, and who taught whom.
    """
    folder = Path(folder)
    events = read_events(folder)
    start = next((event for event in events if isinstance(event, StartEvent)), None)
    if start is None:
        raise RunError(f"{folder / 'metrics.jsonl'}: does not begin with the start of a run; start the run again")
    refuse_link(folder / "plots")
    (folder / "plots").mkdir(exist_ok=True)
    pictures = {
        "accuracy.png": accuracy_figure(events),
        "losses.png": losses_figure(events),
        "split.png": split_figure(start.label_counts, start.primary_labels, start.class_names, start.client_names),
        **_relations(events, start, read_relations(folder)),
    }
    title = plain_text(f"{folder.name} ({start.what})" if start.what else folder.name)
    for name, figure in pictures.items():
        figure.suptitle(title, fontsize="small", color="grey")
        save_figure(figure, folder / "plots" / name)
    return [folder / "plots" / name for name in pictures]


def _relations(events: Sequence[Event], start: StartEvent, relations: Relations | None) -> dict[str, Figure]:
    """Draw the relations between clients that the run measured."""
    pictures = {}
    last = next(iter(on_test_set(events)[::-1]), None)
    if last is not None and last.by_hop and last.clients > 1 and start.exchanges:
        pictures["hops.png"] = hops_figure(last.by_hop)
    if relations is not None and len(relations.accuracy_on or ()) > 1:
        pictures["matrix.png"] = matrix_figure(relations.accuracy_on or ())
    taught = next((event for event in reversed(events) if isinstance(event, TaughtEvent)), None)
    if relations is not None and relations.chosen and taught is not None and taught.own:
        pictures["taught.png"] = taught_figure(relations, taught, start.primary_labels, start.class_names)
    return pictures

"""Pictures, from the events of a run folder."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from manyheads.files import refuse_link
from manyheads.report.figures import accuracy_figure, losses_figure, on_test_set, plain_text, save_figure
from manyheads.report.relations import hops_figure, matrix_figure, taught_figure
from manyheads.report.split_figure import split_figure
from manyheads.runs.events import Event
from manyheads.runs.read import read_events


def plot_run(folder: str | Path) -> list[Path]:
    """Accuracy, losses and the split; where the run measured them also hops, clients by clients, and who taught whom.

    All under `plots/`.
    """
    folder = Path(folder)
    events = read_events(folder)
    refuse_link(folder / "plots")
    (folder / "plots").mkdir(exist_ok=True)
    start = next(event for event in events if event["event"] == "start")
    pictures = {
        "accuracy.png": accuracy_figure(events),
        "losses.png": losses_figure(events),
        "split.png": split_figure(
            start["label_counts"], start["primary_labels"], start["class_names"], start["client_names"]
        ),
        **_relations(events, start),
    }
    title = plain_text(f"{folder.name} ({start['what']})" if "what" in start else folder.name)
    for name, figure in pictures.items():
        figure.suptitle(title, fontsize="small", color="grey")
        save_figure(figure, folder / "plots" / name)
    return [folder / "plots" / name for name in pictures]


def _relations(events: Sequence[Event], start: Event) -> dict[str, Figure]:
    """Pictures of what clients are to each other, from the last events that say it."""
    pictures = {}
    test = next(iter(on_test_set(events)[::-1]), {})
    if len(test.get("accuracy_on", ())) > 1:
        if start.get("exchanges", True):
            pictures["hops.png"] = hops_figure(test["by_hop"])
        pictures["matrix.png"] = matrix_figure(test["accuracy_on"])
    taught = next((event for event in reversed(events) if event["event"] == "taught"), None)
    if taught is not None and taught["chosen"][0]:
        pictures["taught.png"] = taught_figure(taught, start["primary_labels"], start["class_names"])
    return pictures

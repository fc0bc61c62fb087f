"""Of many heads, pictures show some: a thousand lines or panels would take minutes."""

from pathlib import Path

import numpy as np
import pytest

from manyheads.report.figures import MAX_HEADS, accuracy_figure, compare_figure, drawn_heads
from manyheads.report.relations_figures import hops_figure, taught_figure
from manyheads.report.text import head_name
from manyheads.runs.events import EvaluationEvent, TaughtCounts
from manyheads.runs.relations import Relations
from tests.report.test_report import summary

HEADS = 1_001


@pytest.mark.parametrize("heads", [1, 2, MAX_HEADS, MAX_HEADS + 1, HEADS])
def test_the_first_and_the_last_are_among_them(heads: int) -> None:
    drawn = drawn_heads(heads)
    assert drawn == sorted(set(drawn))
    assert (drawn[0], drawn[-1], len(drawn)) == (0, heads - 1, min(heads, MAX_HEADS))


def test_of_a_thousand_heads_some_are_drawn() -> None:
    rising = np.linspace(0.0, 1.0, HEADS).tolist()
    event = EvaluationEvent(part="test", step=1, private_accuracy=[rising] * 2, shared_accuracy=[rising] * 2)
    for axes in accuracy_figure([event]).axes:
        assert [line.get_label() for line in axes.lines] == [head_name(head) for head in drawn_heads(HEADS)]
        assert axes.lines[-1].get_ydata().tolist() == [100.0]  # type: ignore[union-attr]
    (axes,) = hops_figure({"0": rising, "1": rising}).axes
    assert len(axes.lines) == 2 * MAX_HEADS
    relations = Relations(step=1, chosen=[[[1, 0]] * (HEADS - 1)] * 2)
    taught = TaughtCounts(step=1, own=[1] * (HEADS - 1), others=[[1, 0]] * (HEADS - 1))
    *panels, _ = taught_figure(relations, taught, [[0], [1]], ["cat", "dog"]).axes
    assert [panel.get_title() for panel in panels][:: MAX_HEADS - 1] == ["aux 1 head", f"aux {HEADS - 1} head"]


def test_a_thousand_heads_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    many = summary().model_copy(update={"shared_accuracy": [0.5] * HEADS})
    monkeypatch.setattr("manyheads.report.figures.read_summary", lambda folder: many)
    event = EvaluationEvent(part="test", step=1, private_accuracy=[[0.5]], shared_accuracy=[[0.5]])
    monkeypatch.setattr("manyheads.report.figures.read_events", lambda folder: [event])
    ticks = compare_figure({"a": [Path("a")]}).axes[1].get_xticks().tolist()
    assert ticks == drawn_heads(HEADS)

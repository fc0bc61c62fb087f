"""The knobs that are known without PyTorch are those of the algorithms."""

import dataclasses
from typing import Any

import pytest

from manyheads.algorithms import ALGORITHMS
from manyheads.config.knobs import KNOBS, MOST_NODES, MHDKnobs, RunSize, usual_memory


def test_every_algorithm_has_its_knobs() -> None:
    assert [*KNOBS] == [*ALGORITHMS]


@pytest.mark.parametrize("name", KNOBS)
def test_an_algorithm_adds_none(name: str) -> None:
    assert issubclass(ALGORITHMS[name], KNOBS[name])
    fields = [[(f.name, f.default) for f in dataclasses.fields(kind)] for kind in (ALGORITHMS[name], KNOBS[name])]
    assert fields[0] == fields[1]


LONG = RunSize(steps=4_000, nodes=8, classes=100, passes=100.0)


@pytest.mark.parametrize(
    ("given", "size", "ask", "remembers"),
    [
        ({}, LONG, "drawn", True),  # a sample looks the same each time
        ({}, dataclasses.replace(LONG, new_views=True), "surest", False),
        ({}, dataclasses.replace(LONG, new_views=True, nodes=MOST_NODES), "surest", False),
        ({}, dataclasses.replace(LONG, new_views=True, nodes=MOST_NODES + 1), "drawn", True),
        ({"ask": "drawn"}, dataclasses.replace(LONG, new_views=True), "drawn", True),
        ({"ask": "surest"}, LONG, "surest", True),
    ],
)
def test_whom_to_ask_and_what_to_remember_follow_views(
    given: dict[str, Any], size: RunSize, ask: str, remembers: bool
) -> None:
    knobs = MHDKnobs(**given).with_defaults(size)
    assert (knobs.ask, knobs.remember) == (ask, usual_memory(100.0) if remembers else 0.0)
    assert MHDKnobs(**given, remember=0.3).with_defaults(size).remember == 0.3

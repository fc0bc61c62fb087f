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


@pytest.mark.parametrize(
    ("given", "size", "expected"),
    [
        ({}, LONG, 1.0),
        ({"nu_aux": 3.0}, LONG, 1.0),
        ({}, dataclasses.replace(LONG, learning_rate=0.2), 0.25),
        ({"nu_aux": 100.0}, LONG, 0.1),
        ({"nu_aux": 0.0}, LONG, 1.0),
        ({"nu_aux": 30.0}, LONG, 0.3333),
        ({}, dataclasses.replace(LONG, balanced=False), 0.0),
        ({"own_labels": 0.7}, dataclasses.replace(LONG, balanced=False), 0.7),
        ({"own_labels": 0.0}, LONG, 0.0),
    ],
)
def test_own_labels_are_not_learnt_too_fast(given: dict[str, Any], size: RunSize, expected: float) -> None:
    assert MHDKnobs(**given).with_defaults(size).own_labels == expected

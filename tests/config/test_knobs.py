"""The knobs that are known without PyTorch are those of the algorithms."""

import dataclasses

import pytest

from manyheads.algorithms import ALGORITHMS
from manyheads.config.knobs import KNOBS


def test_every_algorithm_has_its_knobs() -> None:
    assert [*KNOBS] == [*ALGORITHMS]


@pytest.mark.parametrize("name", KNOBS)
def test_an_algorithm_adds_none(name: str) -> None:
    assert issubclass(ALGORITHMS[name], KNOBS[name])
    fields = [[(f.name, f.default) for f in dataclasses.fields(kind)] for kind in (ALGORITHMS[name], KNOBS[name])]
    assert fields[0] == fields[1]

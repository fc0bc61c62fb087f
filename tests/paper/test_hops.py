"""Section on topologies: knowledge travels hop by hop, and auxiliary head h is the first that can hold h hops."""

import math
from pathlib import Path
from typing import Any

from manyheads import Experiment, train

RING = Path(__file__).parents[2] / "experiments" / "digits-cycle.toml"


def by_hop(**values: Any) -> dict[str, list[float]]:
    """Four clients with labels that nobody shares, a third of the usual steps."""
    experiment = Experiment.load(RING).with_values(
        data={"skew": math.inf}, training={"steps": 200}, evaluate={"every": 200}
    )
    found: dict[str, list[float]] = train(experiment.with_values(**values)).summary["by_hop"]
    return found


def test_in_a_ring_a_head_knows_as_many_hops_as_its_number() -> None:
    """Two hops in so few steps; the third takes longer (benchmarks/transitivity.py)."""
    found = by_hop(algorithm={"confidence": "density"})
    assert list(found) == ["0", "1", "2", "3"]
    for hop in (1, 2, 3):
        assert max(found[str(hop)][:hop]) < 0.02, "knowledge cannot be faster than the chain of heads"
    assert found["1"][1] > 0.8
    assert found["2"][2] > 0.2
    assert found["2"][3] > 0.5


def test_an_island_never_learns_of_another() -> None:
    found = by_hop(graph={"name": "islands", "size": 2})
    assert list(found) == ["0", "1", "none"]
    assert max(found["none"]) < 0.02
    assert found["1"][1] > 0.5

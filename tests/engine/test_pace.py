"""The pace of the host before a GPU: steps that were handed over cannot be taken back when somebody asks to stop."""

import pytest

from manyheads.engine.cuda.pace import LOOK_SECONDS, MAX_STEPS, Pace


@pytest.mark.parametrize("step", [0.0, 0.001, 0.02, 0.3, 1.0])
def test_looks_are_frequent_where_steps_are_long(step: float) -> None:
    pace = Pace()
    for _ in range(20):
        assert pace.steps == 1 or pace.steps * step <= LOOK_SECONDS * 1.001
        pace.looked(pace.steps * step, pace.steps)
    assert pace.steps == (MAX_STEPS if step <= 0.001 else max(1, int(LOOK_SECONDS / step)))


def test_a_step_that_takes_longer_is_noticed() -> None:
    pace = Pace()
    for _ in range(8):
        pace.looked(0.0, pace.steps)
    pace.looked(MAX_STEPS * 1.0, MAX_STEPS)
    assert pace.steps == 1

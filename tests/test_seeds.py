"""Named randomness."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads import Experiment, train
from manyheads.seeds import generator

names = st.tuples(st.integers(0, 2**40), st.text(max_size=8), st.integers(-1, 100), st.integers(0, 10**9))


@given(names, names)
def test_equal_names_draw_equally_and_others_do_not(
    one: tuple[int, str, int, int], other: tuple[int, str, int, int]
) -> None:
    draw = generator(*one).integers(2**62, size=4).tolist()
    assert draw == generator(*one).integers(2**62, size=4).tolist()
    assert (draw == generator(*other).integers(2**62, size=4).tolist()) == (one == other)


def test_consecutive_steps_are_independent() -> None:
    first = np.array([generator(0, "targets", 0, step).random() for step in range(2_000)])
    assert abs(first.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.07


def test_a_run_leaves_the_global_generators_alone(tiny: Experiment) -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    train(tiny)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002

"""The contract of every confidence: larger is surer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.outputs import Outputs


@pytest.mark.parametrize("name", CONFIDENCES)
@given(shape=st.lists(st.integers(1, 4), max_size=3), classes=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_every_confidence_is_between_an_even_and_a_certain_prediction(
    name: str, shape: list[int], classes: int, seed: int
) -> None:
    def measure(p: Tensor) -> Tensor:
        return CONFIDENCES[name].measure(Outputs(p, None), {})

    scale = 10.0 ** (seed % 4)  # up to distributions whose small probabilities are exactly 0
    p = (torch.randn(*shape, classes, generator=torch.Generator().manual_seed(seed)) * scale).softmax(-1)
    confidence = measure(p)
    assert confidence.shape == p.shape[:-1]
    assert confidence.isfinite().all()
    one_hot, uniform = torch.eye(classes)[0], torch.full((classes,), 1.0 / classes)
    assert measure(one_hot) > measure(uniform)
    assert (confidence <= measure(one_hot) + 1e-5).all()
    assert (confidence >= measure(uniform) - 1e-5).all()


@pytest.mark.parametrize("name", CONFIDENCES)
def test_what_the_owner_measured_goes_before_what_probabilities_say(name: str) -> None:
    p_BHC, measured_BH = torch.eye(3)[None, :2], torch.tensor([[0.25, 0.5]])
    confidence = CONFIDENCES[name]
    assert torch.equal(confidence.of(Outputs(p_BHC, None, measured_BH)), measured_BH)
    assert torch.equal(confidence.of(Outputs(p_BHC, None)), confidence.measure(Outputs(p_BHC, None), {}))

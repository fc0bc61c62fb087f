"""How sure a head is of its prediction: the paper's Lambda. Larger is surer.

Each entry of CONFIDENCES maps probabilities (... x C) to confidences (...).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from manyheads.outputs import Outputs

Confidence = Callable[[Tensor], Tensor]


def max_probability(p: Tensor) -> Tensor:
    """The largest probability, the paper's choice (its text prints argmax; its appendix says max)."""
    return p.amax(-1)


def entropy(p: Tensor) -> Tensor:
    """The negative entropy: sum p log p."""
    return torch.xlogy(p, p).sum(-1)


def margin(p: Tensor) -> Tensor:
    """The distance between the two largest probabilities."""
    largest = p.topk(2, dim=-1).values
    return largest[..., 0] - largest[..., 1]


def density(p: Tensor) -> Tensor:
    """Measured by the owner and carried in `Outputs` (density.py); this is for when nothing was measured yet."""
    return max_probability(p)


CONFIDENCES: dict[str, Confidence] = {
    "max_probability": max_probability,
    "entropy": entropy,
    "margin": margin,
    "density": density,
}


def confidence_of(outputs: Outputs, measure: Confidence) -> Tensor:
    """B x H: as the owner measured it where the outputs carry it, otherwise from the probabilities."""
    return measure(outputs.probabilities_BHC) if outputs.confidence_BH is None else outputs.confidence_BH

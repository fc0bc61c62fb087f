"""Confidences by name."""

from manyheads.config.messages import nearest
from manyheads.exchange.confidence import Confidence, FromProbabilities, entropy, margin, max_probability
from manyheads.exchange.density import DensityConfidence

CONFIDENCES: dict[str, Confidence] = {
    "max_probability": FromProbabilities(max_probability),
    "entropy": FromProbabilities(entropy),
    "margin": FromProbabilities(margin),
    "density": DensityConfidence(),
}


def confidence_named(name: str) -> Confidence:
    """Return the confidence of a name; a ValueError where there is none."""
    if name in CONFIDENCES:
        return CONFIDENCES[name]
    raise ValueError(f"unknown confidence; {nearest(name, CONFIDENCES)}")

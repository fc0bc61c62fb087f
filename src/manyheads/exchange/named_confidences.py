"""Confidences by name. Code from elsewhere is named by its path: `confidence = "my_lab.calibrated:sureness"`."""

import inspect
from functools import cache
from typing import Any

from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError
from manyheads.exchange.confidence import Confidence, ProbabilityConfidence, entropy, margin, max_probability
from manyheads.exchange.density import DensityConfidence
from manyheads.imports import Trust, import_named

CONFIDENCES: dict[str, Confidence] = {
    "max_probability": ProbabilityConfidence(max_probability),
    "entropy": ProbabilityConfidence(entropy, negative=True),
    "margin": ProbabilityConfidence(margin),
    "density": DensityConfidence(),
}
KEY = "algorithm.confidence"
A_CONFIDENCE = "a manyheads.exchange.confidence.Confidence, or a function of probabilities (docs/adding.md)"


def confidence_named(name: str) -> Confidence:
    """Return the confidence of a name: a built-in one, or one whose code `check_confidence` has allowed."""
    return CONFIDENCES[name] if name in CONFIDENCES else _imported(name)


def check_confidence(name: str, trust: Trust) -> None:
    """Raise if there is no such confidence, or if its code must not be imported."""
    if name in CONFIDENCES:
        return
    if ":" not in name:
        raise ConfigurationError(
            f'{KEY} = "{name}": unknown confidence; {nearest(name, CONFIDENCES)}; '
            'your own is named "package.module:name"'
        )
    import_named(name, KEY, _is_confidence, A_CONFIDENCE, trust)


@cache
def _imported(name: str) -> Confidence:
    found = import_named(name, KEY, _is_confidence, A_CONFIDENCE, Trust.full())
    if isinstance(found, Confidence):
        return found
    made: Confidence = found() if isinstance(found, type) else ProbabilityConfidence(found)
    return made


def _is_confidence(found: Any) -> bool:
    a_class = isinstance(found, type) and issubclass(found, Confidence) and not inspect.isabstract(found)
    return a_class or isinstance(found, Confidence) or inspect.isfunction(found)

"""Confidence: how sure a head is of its prediction, the paper's Lambda (Eq. 4). Larger is surer.

A confidence is an object that is named in CONFIDENCES (named_confidences.py) or by `package.module:name`. Most follow
from a model's probabilities. One that is `fitted` is measured by the owner, after a fit to its private data: others see
one number per public row and head, between 0 and 1, and neither the fit nor a private sample.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from manyheads.data.batches import Samples
from manyheads.models.client_model import ClientModel
from manyheads.outputs import Outputs

Tensors = Mapping[str, Tensor]


class Fittable(Protocol):
    """The part of a client that a confidence may read when it is fitted."""

    index: int
    seed: int
    model: ClientModel
    private: Samples


class Confidence(ABC):
    """A measure of how sure each head is of each sample.

    >>> confidence = ProbabilityConfidence(max_probability)
    >>> confidence.of(Outputs(torch.tensor([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]]), None))  # B x H
    tensor([[0.5000, 1.0000]])
    """

    fitted: ClassVar[bool] = False  # whether its owner measures it, after a fit to private data
    name: ClassVar[str] = "confidence"  # stands before the names of its tensors in a save

    def fit(self, client: Fittable, step: int) -> dict[str, Tensor]:
        """Return the tensors that `measure` needs, learnt from a client as it is at `step`."""
        return {}

    @abstractmethod
    def measure(self, outputs: Outputs, tensors: Tensors) -> Tensor:
        """Return how sure each head is (B x H), given the tensors of `fit`."""

    def of(self, outputs: Outputs) -> Tensor:
        """Return how sure each head is (B x H): as its owner measured, if the outputs say so, or from probabilities."""
        return self.measure(outputs, {}) if outputs.confidence_BH is None else outputs.confidence_BH

    def weight(self, confidence: Tensor) -> Tensor:
        """Return confidence as a weight in a mixture: not negative, and larger where a head is surer."""
        return confidence.clamp_min(0.0)

    def with_confidence(self, outputs: Outputs, tensors: Tensors) -> Outputs:
        """Return an owner's outputs with the confidence that it measures, if that is fitted and was fitted before."""
        if not (self.fitted and tensors):
            return outputs
        return Outputs(outputs.probabilities_BHC, outputs.embedding_BE, self.measure(outputs, tensors))

    def works_with(self, tensors: Tensors, model: ClientModel) -> bool:
        """Tell whether `measure` works with these tensors as with those of a fit, tried on one even prediction."""
        like, (heads, classes) = next(model.parameters()), model.shape_HC
        even, zero = like.new_full((1, heads, classes), 1 / classes), like.new_zeros(1, model.embedding_width)
        try:
            confidence_BH = self.with_confidence(Outputs(even, zero), tensors).confidence_BH
        except Exception:  # tensors of another form may lead to any
            return False
        return confidence_BH is None or (
            confidence_BH.shape == (1, heads) and bool(torch.isfinite(confidence_BH).all())
        )

    def saved(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return the tensors under the names that they have in a saved client or checkpoint."""
        return {f"{self.name} {key}": tensor for key, tensor in tensors.items()}

    def loaded(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return this confidence's tensors from among others: the reverse of `saved`."""
        prefix = f"{self.name} "
        return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class ProbabilityConfidence(Confidence):
    """A confidence that follows from probabilities (... x C) alone."""

    function: Callable[[Tensor], Tensor]
    negative: bool = False  # whether it is a logarithm

    def measure(self, outputs: Outputs, tensors: Tensors) -> Tensor:
        return self.function(outputs.probabilities_BHC)

    def weight(self, confidence: Tensor) -> Tensor:
        return confidence.exp() if self.negative else super().weight(confidence)


def max_probability(p: Tensor) -> Tensor:
    """Return the largest probability, the paper's choice (its text prints argmax; its appendix says max).

    >>> max_probability(torch.tensor([0.5, 0.25, 0.25]))
    tensor(0.5000)
    """
    return p.amax(-1)


def entropy(p: Tensor) -> Tensor:
    """Return the negative entropy: sum p log p.

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([-0.6931,  0.0000])
    """
    return torch.xlogy(p, p).sum(-1)


def margin(p: Tensor) -> Tensor:
    """Return the difference between the two largest probabilities.

    >>> margin(torch.tensor([0.5, 0.25, 0.25]))
    tensor(0.2500)
    """
    largest = p.topk(2, dim=-1).values
    return largest[..., 0] - largest[..., 1]

"""How sure a head is of its prediction: the paper's Lambda. Larger is surer.

A confidence is an object that is named in CONFIDENCES (confidences.py) or by `package.module:name`. Most follow from
the probabilities that a model shows. One that is `fitted` is measured by the owner, on what it learnt from its private
data: others see one number per row and head, between 0 and 1, and neither the fit nor a private sample.
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
    """What a confidence may read of the client that it is fitted to."""

    index: int
    seed: int
    model: ClientModel
    private: Samples


class Confidence(ABC):
    """How sure each head is of each sample."""

    fitted: ClassVar[bool] = False  # whether its owner measures it, after a fit to private data
    name: ClassVar[str] = "confidence"  # stands before the names of its tensors where these are saved

    def fit(self, client: Fittable, step: int) -> dict[str, Tensor]:
        """Return what `measure` needs to know of a client as it is at `step`."""
        return {}

    @abstractmethod
    def measure(self, outputs: Outputs, tensors: Tensors) -> Tensor:
        """Return B x H: how sure each head is, given what `fit` returned."""

    def of(self, outputs: Outputs) -> Tensor:
        """Return B x H: as the owner measured it where the outputs carry it, otherwise from the probabilities."""
        return self.measure(outputs, {}) if outputs.confidence_BH is None else outputs.confidence_BH

    def measured(self, outputs: Outputs, tensors: Tensors) -> Outputs:
        """Return the outputs of an owner with its own measure, where that is fitted and the fit is there."""
        if not (self.fitted and tensors):
            return outputs
        return Outputs(outputs.probabilities_BHC, outputs.embedding_BE, self.measure(outputs, tensors))

    def works_with(self, tensors: Tensors, model: ClientModel) -> bool:
        """Whether `measure` can do with these tensors what it does with those of a fit; it is asked about nothing."""
        like, (heads, classes) = next(model.parameters()), model.shape_HC
        even, nothing = like.new_full((1, heads, classes), 1 / classes), like.new_zeros(1, model.embedding_width)
        try:
            sure_BH = self.measured(Outputs(even, nothing), tensors).confidence_BH
            return sure_BH is None or (sure_BH.shape == (1, heads) and bool(torch.isfinite(sure_BH).all()))
        except Exception:  # whatever tensors of another form lead to
            return False

    def saved(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return the tensors under the names by which they are saved with a client or its checkpoint."""
        return {f"{self.name} {key}": tensor for key, tensor in tensors.items()}

    def loaded(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return the tensors of this confidence among others: the reverse of `saved`."""
        prefix = f"{self.name} "
        return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class FromProbabilities(Confidence):
    """A confidence that follows from probabilities (... x C) alone."""

    function: Callable[[Tensor], Tensor]

    def measure(self, outputs: Outputs, tensors: Tensors) -> Tensor:
        return self.function(outputs.probabilities_BHC)


def max_probability(p: Tensor) -> Tensor:
    """Return the largest probability, the paper's choice (its text prints argmax; its appendix says max)."""
    return p.amax(-1)


def entropy(p: Tensor) -> Tensor:
    """Return the negative entropy: sum p log p."""
    return torch.xlogy(p, p).sum(-1)


def margin(p: Tensor) -> Tensor:
    """Return the distance between the two largest probabilities."""
    largest = p.topk(2, dim=-1).values
    return largest[..., 0] - largest[..., 1]

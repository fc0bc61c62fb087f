"""Confidences as users write them: `algorithm.confidence = "tests.exchange.lab:..."`."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from manyheads.exchange.confidence import Confidence, Fittable
from manyheads.models.client_model import embeddings
from manyheads.outputs import Outputs


def second_guess(p: Tensor) -> Tensor:
    """Return how little is left for the second class: a function of probabilities."""
    return 1.0 - p.topk(2, dim=-1).values[..., 1]


class Near(Confidence):
    """A confidence fitted to private data: nearness to the mean of their embeddings, the same for every head."""

    fitted: ClassVar[bool] = True
    name: ClassVar[str] = "near"

    def fit(self, client: Fittable, step: int) -> dict[str, Tensor]:
        samples = torch.from_numpy(client.private.indices)
        return {"middle": embeddings(client.model, client.private.pixels, samples).mean(0)}

    def measure(self, outputs: Outputs, tensors: Mapping[str, Tensor]) -> Tensor:
        assert outputs.embedding_BE is not None
        near_B = torch.exp(-(outputs.embedding_BE - tensors["middle"]).square().mean(-1))
        return near_B[:, None].expand(outputs.probabilities_BHC.shape[:2])


class Unfinished(Confidence):
    """A confidence without `measure`."""


NEAR = Near()
NOTHING = 3

"""A density model of private embeddings: how much a sample is like those that its owner trained on.

The paper suggests such a model as a better confidence than the largest probability. The owner fits it and evaluates it;
another client sees one number per public row, never the model and never a private sample.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from manyheads.errors import LEARN_SLOWER, TrainingError
from manyheads.exchange.confidence import Confidence, Fittable, Tensors
from manyheads.models.client_model import embeddings
from manyheads.outputs import Outputs
from manyheads.seeds import generator

MOST_SAMPLES = 2_048  # private samples that a density is fitted to
SHRINKAGE = 0.1  # towards equal variances: there are few private samples for a full covariance


@dataclass(frozen=True, eq=False)
class Density:
    """A Gaussian around the embeddings of each private label, with one covariance for all. Never in bfloat16.

    L is the number of classes: one without a private sample gets the mean of another, so that every density has the
    same shape, whichever samples were drawn.
    """

    means_LE: Tensor
    whitening_EE: Tensor
    scale_2: Tensor  # the median and the largest distance of the private samples themselves

    @classmethod
    @torch.no_grad()
    def fit(cls, embedding_RE: Tensor, labels_R: Tensor, classes: int) -> "Density":
        """Fit to the embeddings of R private samples. Only their direction counts, as in embedding distillation."""
        with torch.autocast(embedding_RE.device.type, enabled=False):
            dtype = torch.promote_types(embedding_RE.dtype, torch.float32)
            unit_RE = normalize(embedding_RE.to(dtype), dim=-1)
            member_RL = one_hot(labels_R, classes).to(dtype)  # in a product sums are the same every time, on a GPU, too
            counts_L1 = member_RL.sum(0)[:, None]
            means_LE = member_RL.T @ unit_RE / counts_L1.clamp_min(1.0)
            means_LE = torch.where(counts_L1 > 0.0, means_LE, means_LE[labels_R[:1]])
            apart_RE = unit_RE - means_LE[labels_R]
            covariance_EE = apart_RE.T @ apart_RE / len(unit_RE)
            width = len(covariance_EE)
            even = covariance_EE.trace() / width + 1e-8
            eye_EE = torch.eye(width, dtype=dtype, device=unit_RE.device)
            covariance_EE = (1.0 - SHRINKAGE) * covariance_EE + SHRINKAGE * even * eye_EE
            lower_EE = torch.linalg.cholesky(covariance_EE)
            whitening_EE = torch.linalg.solve_triangular(lower_EE, eye_EE, upper=False).T.contiguous()
            fitted = cls(means_LE, whitening_EE, unit_RE.new_zeros(2))
            distance_R = fitted.distance(embedding_RE).sort().values
            return dataclasses.replace(fitted, scale_2=distance_R[[len(distance_R) // 2, -1]])

    def distance(self, embedding_BE: Tensor) -> Tensor:
        """Return the Mahalanobis distance to the nearest label's mean."""
        with torch.autocast(embedding_BE.device.type, enabled=False):
            unit_BE = normalize(embedding_BE.to(self.whitening_EE.dtype), dim=-1)
            return torch.cdist(unit_BE @ self.whitening_EE, self.means_LE @ self.whitening_EE).amin(-1)

    def typicality(self, embedding_BE: Tensor) -> Tensor:
        """Return 1 for a sample as near as the owner's own mostly are, falling to 0 far from all of them.

        Near and far are measured by the owner's own samples: exp(-max(0, (d - median) / (largest - median))^2).
        """
        middle, far = self.scale_2
        beyond_B = (self.distance(embedding_BE) - middle) / (far - middle).clamp_min(1e-6)
        return torch.exp(-beyond_B.clamp_min(0.0).square())

    def confidence(self, p_BHC: Tensor, embedding_BE: Tensor) -> Tensor:
        """Return the largest probability (B x H); the main head's is multiplied by how typical the sample is.

        The main head saw private samples only. The auxiliary heads were taught on the public set, too.
        """
        confidence_BH = p_BHC.amax(-1)
        confidence_BH[:, 0] *= self.typicality(embedding_BE)
        return confidence_BH


class DensityConfidence(Confidence):
    """The largest probability; the main head's falls as a sample differs from the owner's private ones."""

    fitted: ClassVar[bool] = True
    name: ClassVar[str] = "density"

    @torch.no_grad()
    def fit(self, client: Fittable, step: int) -> dict[str, Tensor]:
        """Fit a density to the client's own samples, as they are, without views."""
        rng = generator(client.seed, "density samples", client.index, step)
        chosen = np.sort(rng.permutation(client.private.indices)[:MOST_SAMPLES])
        samples = torch.from_numpy(chosen).to(client.private.pixels.device)
        embedding_RE = embeddings(client.model, client.private.pixels, samples)
        if not torch.isfinite(embedding_RE).all():
            raise TrainingError(
                f"step {step}, client {client.index}: an embedding is not a number, so no density can be fitted; "
                f"{LEARN_SLOWER}"
            )
        density = Density.fit(embedding_RE, client.private.labels(samples), client.model.shape_HC[1])
        return {field.name: getattr(density, field.name) for field in dataclasses.fields(density)}

    def measure(self, outputs: Outputs, tensors: Tensors) -> Tensor:
        if not tensors:  # nothing was fitted yet
            return outputs.probabilities_BHC.amax(-1)
        assert outputs.embedding_BE is not None, "an owner knows its embedding"
        return Density(**tensors).confidence(outputs.probabilities_BHC, outputs.embedding_BE)

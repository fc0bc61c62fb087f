"""Clients left alone: private training only. With one client that holds all private data: *supervised*."""

from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.algorithms.base import Algorithm
from manyheads.client import Batch, Client
from manyheads.experiment import CHECKED


@dataclass(frozen=True, config=CHECKED)
class Separate(Algorithm):
    """Sees no public data, has no auxiliary heads, exchanges nothing."""

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        logits_BHC, _ = client.model(batch.private.images)
        return {"cross_entropy": cross_entropy(logits_BHC[:, 0], batch.labels)}

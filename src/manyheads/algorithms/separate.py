"""Clients left alone: private training only. With one client that holds all private data: *supervised*."""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.algorithms.base import Neighbours
from manyheads.client import Batch, Client, Plan
from manyheads.experiment import CHECKED
from manyheads.snapshot import Snapshot


@dataclass(frozen=True, config=CHECKED)
class Separate:
    """Sees no public data, has no auxiliary heads, exchanges nothing."""

    distils: ClassVar[bool] = False
    needs_neighbours: ClassVar[bool] = False

    def exchange_steps(self, steps: int) -> range:
        return range(0)

    @property
    def pool_size(self) -> int:
        return 0

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        return []

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        pass

    def plan(self, client: Client, start: int, stop: int) -> Plan:
        return {}

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        logits_BHC, _ = client.model(batch.private.images)
        return {"cross_entropy": cross_entropy(logits_BHC[:, 0], batch.labels)}

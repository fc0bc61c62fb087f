"""What one client shows another: a snapshot answers `outputs(rows)` for public rows, in evaluation mode."""

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.outputs import Outputs

if TYPE_CHECKING:
    from manyheads.exchange.weights import WeightsSnapshot


class Snapshot(Protocol):
    """A client as it was at a step."""

    @property
    def client(self) -> int:
        """Whose it is."""

    @property
    def step(self) -> int:
        """When it was taken."""

    @property
    def nbytes(self) -> int:
        """What it costs to receive it: the size of its encoding."""

    def outputs(self, rows: Rows) -> Outputs:
        """Return what it says about public rows."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all that a saved run keeps of it; nothing where its owner keeps it."""

    @property
    def source(self) -> "WeightsSnapshot | None":
        """The checkpoint that answers, where that is in this process: an engine may then ask it in its own way."""

    def as_sent(self, outputs: Outputs, dtype: torch.dtype) -> Outputs:
        """Return what a receiver reads of what `source` said."""

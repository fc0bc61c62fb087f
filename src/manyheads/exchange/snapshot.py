"""Snapshots: a client as it was at a step. A snapshot answers `outputs(rows)` for public rows, in evaluation mode."""

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
        """The client that it was taken of."""

    @property
    def step(self) -> int:
        """The step at which it was taken."""

    @property
    def nbytes(self) -> int:
        """The size of its encoding: what it costs to receive it."""

    def outputs(self, rows: Rows) -> Outputs:
        """Return what the client predicted for public rows."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all that a saved run stores of it; nothing if its owner keeps it."""

    @property
    def source(self) -> "WeightsSnapshot | None":
        """The checkpoint behind it, if that is in this process: an engine may then evaluate it in its own way."""

    def as_sent(self, outputs: Outputs, dtype: torch.dtype) -> Outputs:
        """Return the outputs of `source` as a receiver reads them."""

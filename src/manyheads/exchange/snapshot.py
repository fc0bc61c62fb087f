"""What one client shows another: a snapshot answers `outputs(rows)` for public rows, in evaluation mode."""

from typing import Protocol

from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.outputs import Outputs


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
        """What it says about public rows."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a saved run keeps of it."""

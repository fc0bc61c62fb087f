"""What one client shows another: a snapshot answers `outputs(rows)` for public rows, in evaluation mode."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.models.client_model import ClientModel
from manyheads.models.flat import FlatState
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
        """What it costs to receive it."""

    def outputs(self, rows: Rows) -> Outputs:
        """What it says about public rows."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a saved run keeps of it."""


class Replica:
    """A second model of a client's architecture, in evaluation mode, into which snapshots are loaded to be asked."""

    def __init__(self, model: ClientModel) -> None:
        self.model = model.eval().requires_grad_(False)
        self.state = FlatState(model, trainable=False)

    def outputs(self, values: Tensor, integers: dict[str, Tensor], rows: Rows) -> Outputs:
        self.state.load(values, integers)
        with torch.no_grad():
            logits_BHC, embedding_BE = self.model(rows.images)
            return Outputs(logits_BHC.softmax(-1), embedding_BE)


@dataclass(frozen=True, eq=False)
class WeightsSnapshot:
    """A checkpoint, evaluated by whoever holds it: how the paper simulates. It never leaves the machine."""

    client: int
    step: int
    values: Tensor
    integers: dict[str, Tensor]
    replica: Replica

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(tensor.nbytes for tensor in self.integers.values())

    def outputs(self, rows: Rows) -> Outputs:
        return self.replica.outputs(self.values, self.integers, rows)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "values": self.values,
            **{f"integer {name}": tensor for name, tensor in self.integers.items()},
        }

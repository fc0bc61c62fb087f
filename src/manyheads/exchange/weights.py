"""Snapshots that are checkpoints, evaluated by whoever holds them: how the paper simulates."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import safetensors.torch
import torch
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.exchange.density import Density
from manyheads.models.client_model import ClientModel
from manyheads.models.flat import FlatState
from manyheads.models.norm import in_parts
from manyheads.outputs import Outputs


class Replica:
    """A second model of a client's architecture, in evaluation mode, into which snapshots are loaded to be asked."""

    def __init__(self, model: ClientModel) -> None:
        # First the layout, which tells trained from frozen parameters: the client's is the same.
        self.state = FlatState(model, trainable=False)
        self.model = model.eval().requires_grad_(False)

    def outputs(self, values: Tensor, integers: Mapping[str, Tensor], rows: Rows, density: Density | None) -> Outputs:
        self.state.load(values, integers)
        with torch.no_grad(), in_parts(self.model, ()):  # nothing to train: on a GPU, fewer sweeps over memory
            logits_BHC, embedding_BE = self.model(rows.images)
            p_BHC = logits_BHC.softmax(-1)
            measured_BH = None if density is None else density.confidence(p_BHC, embedding_BE)
            return Outputs(p_BHC, embedding_BE, measured_BH)

    @cached_property
    def encoded_size(self) -> int:
        """The size of a checkpoint of this architecture as a file; its numbers do not matter."""
        return len(safetensors.torch.save({k: t.cpu() for k, t in checkpoint(self.state).items()}))


@dataclass(frozen=True, eq=False)
class WeightsSnapshot:
    """A checkpoint, evaluated by whoever holds it: how the paper simulates. It never leaves the machine."""

    client: int
    step: int
    values: Tensor
    integers: Mapping[str, Tensor]
    replica: Replica
    samples: int  # private ones of its client: the weight of its vote where weights are averaged
    density: Density | None = None

    @property
    def nbytes(self) -> int:
        density = {} if self.density is None else self.density.tensors()
        return self.replica.encoded_size + sum(tensor.nbytes for tensor in density.values())

    def outputs(self, rows: Rows) -> Outputs:
        return self.replica.outputs(self.values, self.integers, rows, self.density)

    def tensors(self) -> dict[str, Tensor]:
        density = {} if self.density is None else self.density.tensors()
        return {
            "values": self.values,
            **{f"integer {name}": tensor for name, tensor in self.integers.items()},
            **density,
        }


def checkpoint(state: FlatState) -> dict[str, Tensor]:
    """The numbers of a model under the names by which they are saved."""
    return {"values": state.values, **{f"integer {name}": tensor for name, tensor in state.integers.items()}}

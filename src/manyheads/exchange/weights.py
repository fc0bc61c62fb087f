"""Snapshots that are checkpoints of weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import safetensors.torch
import torch
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.exchange.confidence import Confidence, Tensors
from manyheads.models.client_model import ClientModel
from manyheads.models.flat import FlatState
from manyheads.models.norm import in_parts
from manyheads.outputs import Outputs


class Replica:
    """A second model of a client's architecture, in evaluation mode, into which checkpoints are loaded."""

    def __init__(self, model: ClientModel) -> None:
        # The layout comes first: like the client's, it separates trained from frozen parameters.
        self.state = FlatState(model, trainable=False)
        self.model = model.eval().requires_grad_(False)

    def outputs(self, values: Tensor, integers: Mapping[str, Tensor], rows: Rows) -> Outputs:
        self.state.load(values, integers)
        with torch.no_grad(), in_parts(self.model, ()):  # nothing to train: on a GPU, fewer sweeps over memory
            logits_BHC, embedding_BE = self.model(rows.images)
            return Outputs(logits_BHC.softmax(-1), embedding_BE)

    @cached_property
    def encoded_size(self) -> int:
        """The size of a checkpoint of this architecture as a file, whatever its numbers."""
        return len(safetensors.torch.save({k: t.cpu() for k, t in checkpoint(self.state).items()}))


@dataclass(frozen=True, eq=False)
class WeightsSnapshot:
    """A checkpoint, evaluated by whoever holds it: how the paper simulates."""

    client: int
    step: int
    values: Tensor
    integers: Mapping[str, Tensor]
    replica: Replica
    samples: int  # private ones of its client: its weight in an average
    confidence: Confidence
    fit_tensors: Tensors  # of a fitted confidence

    @property
    def nbytes(self) -> int:
        return self.replica.encoded_size + sum(tensor.nbytes for tensor in self.fit_tensors.values())

    def outputs(self, rows: Rows) -> Outputs:
        with torch.no_grad():
            return self.with_confidence(self.replica.outputs(self.values, self.integers, rows))

    def with_confidence(self, outputs: Outputs) -> Outputs:
        """Return the model's outputs with the confidence that the owner measures, if that is fitted."""
        return self.confidence.with_confidence(outputs, self.fit_tensors)

    def tensors(self) -> dict[str, Tensor]:
        integers = {f"integer {name}": tensor for name, tensor in self.integers.items()}
        return {"values": self.values, **integers, **self.confidence.saved(self.fit_tensors)}

    @property
    def source(self) -> "WeightsSnapshot":
        return self

    def as_sent(self, outputs: Outputs, dtype: torch.dtype) -> Outputs:
        return outputs


def checkpoint(state: FlatState) -> dict[str, Tensor]:
    """Return the numbers of a model under the names by which they are saved."""
    return {"values": state.values, **{f"integer {name}": tensor for name, tensor in state.integers.items()}}

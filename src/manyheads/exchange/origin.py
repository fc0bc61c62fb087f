"""Where snapshots come from: all that it takes to ask those of one client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from manyheads.exchange.density import Density
from manyheads.exchange.predictions import Catalogue
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.weights import Replica, WeightsSnapshot


@dataclass(frozen=True, eq=False)
class Origin:
    """Where snapshots come from: all that it takes to ask those of one client, wherever that client itself lives."""

    client: int
    samples: int  # private ones
    replica_of: Callable[[], Replica]  # equal architectures share one
    catalogue: Catalogue | None  # where predictions are exchanged

    @property
    def replica(self) -> Replica:
        """Where this client's snapshots are asked."""
        return self.replica_of()

    def checkpoint(
        self, step: int, values: Tensor, integers: Mapping[str, Tensor], beside: Mapping[str, Tensor]
    ) -> WeightsSnapshot:
        density = Density.from_tensors(beside)
        return WeightsSnapshot(self.client, step, values, integers, self.replica, self.samples, density)

    def restored(self, step: int, tensors: Mapping[str, Tensor]) -> Snapshot:
        """The client as it was at `step`, from what `Snapshot.tensors` gave."""
        if "message" in tensors:
            assert self.catalogue is not None
            return self.catalogue.accept(tensors["message"].numpy().tobytes())
        device = self.replica.state.values.device
        there = {name: tensor.to(device) for name, tensor in tensors.items()}
        integers = {name: there[f"integer {name}"] for name in self.replica.state.integers}
        return self.checkpoint(step, there["values"], integers, there)

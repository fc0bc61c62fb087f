"""Where snapshots come from: all that it takes to accept and to ask those of one client, wherever it lives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from manyheads.errors import SnapshotError
from manyheads.exchange.confidence import Confidence
from manyheads.exchange.received import NothingSaid, accept
from manyheads.exchange.request import Request
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer
from manyheads.exchange.weights import Replica, WeightsSnapshot


@dataclass(frozen=True, eq=False)
class Origin:
    """One client as the others know it."""

    client: int
    samples: int  # private ones
    replica_of: Callable[[], Replica]  # equal architectures share one
    schema: TableSchema | None  # where predictions are exchanged
    confidence: Confidence

    @property
    def replica(self) -> Replica:
        """Where this client's checkpoints are asked."""
        return self.replica_of()

    def checkpoint(
        self, step: int, values: Tensor, integers: Mapping[str, Tensor], beside: Mapping[str, Tensor]
    ) -> WeightsSnapshot:
        """Return the client as it was at `step`; `beside` holds what its confidence learnt, perhaps among others."""
        fit = self.confidence.loaded(beside) if self.confidence.fitted else {}
        return WeightsSnapshot(self.client, step, values, integers, self.replica, self.samples, self.confidence, fit)

    def accept(self, request: Request, answer: Answer | SnapshotError) -> Snapshot:
        """Return the snapshot that an answer is; a SnapshotError where it is not what was asked."""
        if isinstance(answer, SnapshotError):
            raise answer
        if isinstance(answer, bytes):
            assert self.schema is not None, "messages are exchanged where there are tables"
            if answer or request.rows is None or len(request.rows):
                snapshot: Snapshot = accept(self.schema, answer, request.rows)
            else:
                snapshot = NothingSaid(self.schema, request.owner, request.step)
        else:
            snapshot = answer
        if (snapshot.client, snapshot.step) != (request.owner, request.step):
            raise SnapshotError(
                f"client {snapshot.client}, step {snapshot.step}: client {request.owner} was asked as of step "
                f"{request.step}"
            )
        return snapshot

    def held(self, snapshot: Snapshot) -> Snapshot:
        """Return what stands in a pool for a snapshot of a save: where its owner keeps it, nothing is said yet."""
        if self.schema is None or self.schema.whole:
            return snapshot
        return NothingSaid(self.schema, snapshot.client, snapshot.step)

    def restored(self, step: int, tensors: Mapping[str, Tensor]) -> Snapshot:
        """Return the client as it was at `step`, from what `Snapshot.tensors` gave."""
        if "message" in tensors:
            assert self.schema is not None
            return accept(self.schema, tensors["message"].numpy().tobytes())
        return self.restored_checkpoint(step, tensors)

    def restored_checkpoint(self, step: int, tensors: Mapping[str, Tensor]) -> WeightsSnapshot:
        """Return the client as it was at `step`, from the tensors of its checkpoint."""
        device = self.replica.state.values.device
        there = {name: tensor.to(device) for name, tensor in tensors.items()}
        integers = {name: there[f"integer {name}"] for name in self.replica.state.integers}
        return self.checkpoint(step, there["values"], integers, there)

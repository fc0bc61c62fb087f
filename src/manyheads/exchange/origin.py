"""The asker's side of an exchange: all that it takes to accept and evaluate the snapshots of one client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from manyheads.errors import SnapshotError
from manyheads.exchange.confidence import Confidence
from manyheads.exchange.received import PlaceholderSnapshot, accept_message
from manyheads.exchange.request import Request
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer
from manyheads.exchange.weights import Replica, WeightsSnapshot


@dataclass(frozen=True, eq=False)
class Origin:
    """One client as the others know it, wherever it lives."""

    client: int
    samples: int  # private ones
    replica_of: Callable[[], Replica]  # equal architectures share one
    schema: TableSchema | None  # None: weights are exchanged
    confidence: Confidence

    @property
    def replica(self) -> Replica:
        """The model in which this client's checkpoints are evaluated."""
        return self.replica_of()

    def checkpoint(
        self, step: int, values: Tensor, integers: Mapping[str, Tensor], beside: Mapping[str, Tensor]
    ) -> WeightsSnapshot:
        """Return the client as it was at `step`; the tensors of its confidence are among those of `beside`."""
        fit_tensors = self.confidence.loaded(beside) if self.confidence.fitted else {}
        return WeightsSnapshot(
            self.client, step, values, integers, self.replica, self.samples, self.confidence, fit_tensors
        )

    def accept(self, request: Request, answer: Answer | SnapshotError) -> Snapshot:
        """Return the snapshot that was asked for, or raise a SnapshotError if the answer is anything else."""
        if isinstance(answer, SnapshotError):
            raise answer
        if isinstance(answer, bytes):
            assert self.schema is not None, "messages are exchanged where there are tables"
            if answer or request.rows is None or len(request.rows):
                snapshot: Snapshot = accept_message(self.schema, answer, request.rows)
            else:
                snapshot = PlaceholderSnapshot(self.schema, request.owner, request.step)
        else:
            snapshot = answer
        if (snapshot.client, snapshot.step) != (request.owner, request.step):
            raise SnapshotError(
                f"client {snapshot.client}, step {snapshot.step}: client {request.owner} was asked as of step "
                f"{request.step}"
            )
        return snapshot

    def pool_entry(self, snapshot: Snapshot) -> Snapshot:
        """Return the pool's entry for a snapshot of a save: a placeholder, if its owner keeps it and is asked again."""
        if self.schema is None or self.schema.whole:
            return snapshot
        return PlaceholderSnapshot(self.schema, snapshot.client, snapshot.step)

    def restored(self, step: int, tensors: Mapping[str, Tensor]) -> Snapshot:
        """Return the client as it was at `step` from the tensors of a saved snapshot."""
        if "message" in tensors:
            assert self.schema is not None
            return accept_message(self.schema, tensors["message"].numpy().tobytes())
        return self.restored_checkpoint(step, tensors)

    def restored_checkpoint(self, step: int, tensors: Mapping[str, Tensor]) -> WeightsSnapshot:
        """Return the client as it was at `step` from the tensors of a saved checkpoint."""
        device = self.replica.state.values.device
        there = {name: tensor.to(device) for name, tensor in tensors.items()}
        integers = {name: there[f"integer {name}"] for name in self.replica.state.integers}
        return self.checkpoint(step, there["values"], integers, there)

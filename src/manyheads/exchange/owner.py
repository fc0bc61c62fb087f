"""The owner's side of an exchange: answers from the client as it is now, or from a snapshot that it still keeps."""

from collections.abc import Callable, Iterable

from manyheads.errors import SnapshotError
from manyheads.exchange.received import UnencodedTable
from manyheads.exchange.request import PublicRows, Request
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer
from manyheads.exchange.weights import WeightsSnapshot


class Owner:
    """Answers for one client; equal requests of one exchange are answered once.

    A snapshot is kept as long as somebody's request says `keep`; all others are dropped when the exchange is over.
    """

    def __init__(self, client: int, schema: TableSchema | None, snapshot: Callable[[int], WeightsSnapshot]) -> None:
        self.kept: dict[int, WeightsSnapshot] = {}  # by step
        self._client, self._schema, self._snapshot = client, schema, snapshot
        self._keep: dict[int, tuple[int, ...]] = {}  # by asker: the steps that it will ask about again
        self._answers: dict[object, Answer] = {}
        self._now: int | None = None

    def begin_exchange(self, step: int) -> None:
        """Answer with the client as of `step`, from now on."""
        self._now = step

    def answer(self, request: Request, *, encode: bool = True) -> Answer:
        """Return what was asked: a checkpoint, or a message about rows. Without `encode`, rows stay on the device."""
        self._keep[request.asker] = request.keep
        if request.rows is not None and not len(request.rows) and request.step not in request.keep:
            return b""  # this request only releases what was kept
        snapshot = self._snapshot_at(request.step)
        if request.key not in self._answers:
            self._answers[request.key] = self._answer_from(snapshot, request.rows, encode)
        return self._answers[request.key]

    def end_exchange(self) -> None:
        """Drop the snapshots that nobody asked to keep."""
        keep = {step for steps in self._keep.values() for step in steps}
        self.kept = {step: snapshot for step, snapshot in self.kept.items() if step in keep}
        self._answers, self._now = {}, None

    def restore(self, snapshots: Iterable[Snapshot]) -> None:
        """Keep those checkpoints of a save that somebody will ask about again."""
        by_rows = self._schema is not None and not self._schema.whole
        self.kept = {s.step: s for s in snapshots if by_rows and isinstance(s, WeightsSnapshot)}
        self._keep, self._answers, self._now = {}, {}, None

    def _answer_from(self, snapshot: WeightsSnapshot, rows: PublicRows | None, encode: bool) -> Answer:
        if self._schema is None:
            return snapshot
        stays = self._schema.public.pixels.on_device and not snapshot.replica.model.external
        if stays and not (encode or self._schema.whole) and rows is not None:
            return UnencodedTable(self._schema, snapshot, rows)
        rows = self._schema.every_row if rows is None else rows
        return self._schema.encode(snapshot, rows) if len(rows) else b""

    def _snapshot_at(self, step: int) -> WeightsSnapshot:
        if step not in self.kept:
            if step != self._now:
                raise SnapshotError(f"client {self._client}: no longer keeps its snapshot of step {step}")
            self.kept[step] = self._snapshot(step)
        return self.kept[step]

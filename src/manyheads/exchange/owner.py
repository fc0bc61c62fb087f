"""Who answers for a client: from what it is now, or from an earlier snapshot that somebody still asks about."""

from collections.abc import Callable, Iterable

from manyheads.errors import SnapshotError
from manyheads.exchange.received import UnencodedTable
from manyheads.exchange.request import PublicRows, Request
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer
from manyheads.exchange.weights import WeightsSnapshot


class Owner:
    """Makes the answers of one client; equal questions of one exchange are answered once.

    The snapshots that askers name as held stay until nobody does; all others go when the exchange is over.
    """

    def __init__(self, client: int, schema: TableSchema | None, snapshot: Callable[[int], WeightsSnapshot]) -> None:
        self.kept: dict[int, WeightsSnapshot] = {}  # by step
        self._client, self._schema, self._snapshot = client, schema, snapshot
        self._held: dict[int, tuple[int, ...]] = {}  # by asker: the steps that it will ask about again
        self._answers: dict[object, Answer] = {}
        self._now: int | None = None

    def begin_exchange(self, step: int) -> None:
        """Answer as of `step`, from now on."""
        self._now = step

    def answer(self, request: Request, *, encode: bool = True) -> Answer:
        """Return what was asked: a checkpoint, or a message about rows. Without `encode`, rows stay on the device."""
        self._held[request.asker] = request.held
        if request.rows is not None and not len(request.rows) and request.step not in request.held:
            return b""  # somebody only lets go
        shown = self._as_of(request.step)
        if request.subject not in self._answers:
            self._answers[request.subject] = self._made(shown, request.rows, encode)
        return self._answers[request.subject]

    def end_exchange(self) -> None:
        """Let go of what nobody holds."""
        held = {step for steps in self._held.values() for step in steps}
        self.kept = {step: snapshot for step, snapshot in self.kept.items() if step in held}
        self._answers, self._now = {}, None

    def restore(self, snapshots: Iterable[Snapshot]) -> None:
        """Keep the checkpoints of a save about which somebody will ask again."""
        by_rows = self._schema is not None and not self._schema.whole
        self.kept = {s.step: s for s in snapshots if by_rows and isinstance(s, WeightsSnapshot)}
        self._held, self._answers, self._now = {}, {}, None

    def _made(self, shown: WeightsSnapshot, rows: PublicRows | None, encode: bool) -> Answer:
        if self._schema is None:
            return shown
        stays = self._schema.public.pixels.on_device and not shown.replica.model.external
        if stays and not (encode or self._schema.whole) and rows is not None:
            return UnencodedTable(self._schema, shown, rows)
        rows = self._schema.every_row if rows is None else rows
        return self._schema.encode(shown, rows) if len(rows) else b""

    def _as_of(self, step: int) -> WeightsSnapshot:
        if step not in self.kept:
            if step != self._now:
                raise SnapshotError(f"client {self._client}: keeps no snapshot of step {step} any more")
            self.kept[step] = self._snapshot(step)
        return self.kept[step]

"""What the nodes of a worker ask in an exchange, and the promises that stand for answers until these are there."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from manyheads.errors import SnapshotError
from manyheads.exchange.origin import Origin
from manyheads.exchange.request import NO_ROWS, PublicRows, Request, Subject
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer


@dataclass(frozen=True, eq=False)
class Promise:
    """Stands for what was asked until the answer is there: `collect` passes it on, unseen."""

    request: Request

    @property
    def client(self) -> int:
        """Whose snapshot it will be."""
        return self.request.owner

    @property
    def step(self) -> int:
        """When that was, or will be, taken."""
        return self.request.step

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"collect looks at a snapshot's {name}: it may only pass on what neighbours[j] gives")


@dataclass
class Asking:
    """What one client asks in one exchange."""

    asker: int
    owner_of: Callable[[int], int]  # of a node: the client that answers for it
    step: int
    _made: dict[Subject, Request] = field(default_factory=dict)
    _held: dict[int, set[int]] = field(default_factory=dict)

    def ask(self, node: int | None, rows: PublicRows | None, step: int | None, hold: bool) -> Any:
        """Return a promise of what a node (None: the asker itself) says."""
        owner = self.asker if node is None else self.owner_of(node)
        request = Request(self.asker, owner, self.step if step is None else step, rows)
        if hold:
            self._held.setdefault(owner, set()).add(request.step)
        return Promise(self._made.setdefault(request.subject, request))

    @property
    def owners_held(self) -> set[int]:
        """Those that keep a snapshot for the asker."""
        return set(self._held)

    def requests(self, held_before: Collection[int]) -> list[Request]:
        """Return every question once; owners of whom nothing is held any more are told so."""
        held = {owner: tuple(sorted(steps)) for owner, steps in self._held.items()}
        asked = [replace(request, held=held.get(request.owner, ())) for request in self._made.values()]
        forgotten = set(held_before) - {request.owner for request in asked}
        return asked + [Request(self.asker, owner, self.step, NO_ROWS) for owner in sorted(forgotten)]


class Answers:
    """Answers that were checked: each once, and each one object, however many pools take it."""

    def __init__(self, origins: Sequence[Origin], answers: Mapping[Subject, Answer | SnapshotError]) -> None:
        self._origins, self._answers = origins, answers
        self._checked: dict[Subject, Snapshot | SnapshotError] = {}

    def to(self, asked: Sequence[Snapshot | Promise]) -> Iterator[Snapshot | tuple[Request, SnapshotError]]:
        """Give for each promise the snapshot, or why it was refused."""
        for got in asked:
            if not isinstance(got, Promise):
                yield got
                continue
            found = self._check(got.request)
            yield (got.request, found) if isinstance(found, SnapshotError) else found

    def _check(self, request: Request) -> Snapshot | SnapshotError:
        if request.subject not in self._checked:
            try:
                answer = self._answers[request.subject]
                self._checked[request.subject] = self._origins[request.owner].accept(request, answer)
            except SnapshotError as error:
                self._checked[request.subject] = error
        return self._checked[request.subject]

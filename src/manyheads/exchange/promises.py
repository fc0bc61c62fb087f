"""The requests of a worker's clients in one exchange, and the promises that stand for answers until these arrive."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from manyheads.errors import SnapshotError
from manyheads.exchange.origin import Origin
from manyheads.exchange.request import NO_ROWS, PublicRows, Request, RequestKey
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.transport import Answer


@dataclass(frozen=True, eq=False)
class Promise:
    """A stand-in for a snapshot until the answer arrives: `collect` passes it on without looking inside."""

    request: Request

    @property
    def client(self) -> int:
        """The client whose snapshot it will be."""
        return self.request.owner

    @property
    def step(self) -> int:
        """The step at which that snapshot was, or will be, taken."""
        return self.request.step

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"collect reads a snapshot's {name}: it may only pass on what neighbours[j] gives")


@dataclass
class RequestCollector:
    """The requests of one client in one exchange."""

    asker: int
    owner_of: Callable[[int], int]  # of a node: the client that answers for it
    step: int
    _made: dict[RequestKey, Request] = field(default_factory=dict)
    _kept: dict[int, set[int]] = field(default_factory=dict)

    def ask(self, node: int | None, rows: PublicRows | None, step: int | None, keep: bool) -> Any:
        """Ask a node (None: the asker itself); return a promise of its snapshot."""
        owner = self.asker if node is None else self.owner_of(node)
        request = Request(self.asker, owner, self.step if step is None else step, rows)
        if keep:
            self._kept.setdefault(owner, set()).add(request.step)
        return Promise(self._made.setdefault(request.key, request))

    @property
    def owners_keeping(self) -> set[int]:
        """The clients that keep a snapshot for the asker."""
        return set(self._kept)

    def requests(self, keeping_before: Collection[int]) -> list[Request]:
        """Return each request once, and one that releases each owner that need not keep anything any more."""
        steps = {owner: tuple(sorted(kept)) for owner, kept in self._kept.items()}
        asked = [replace(request, keep=steps.get(request.owner, ())) for request in self._made.values()]
        released = set(keeping_before) - {request.owner for request in asked}
        return asked + [Request(self.asker, owner, self.step, NO_ROWS) for owner in sorted(released)]


class CheckedAnswers:
    """Answers, each checked once and one object, however many pools take it."""

    def __init__(self, origins: Sequence[Origin], answers: Mapping[RequestKey, Answer | SnapshotError]) -> None:
        self._origins, self._answers = origins, answers
        self._checked: dict[RequestKey, Snapshot | SnapshotError] = {}

    def fulfil(self, asked: Sequence[Snapshot | Promise]) -> Iterator[Snapshot | tuple[Request, SnapshotError]]:
        """Yield the snapshot that each promise stands for, or the request and why its answer was refused."""
        for promise in asked:
            if not isinstance(promise, Promise):
                yield promise
                continue
            checked = self._check(promise.request)
            yield (promise.request, checked) if isinstance(checked, SnapshotError) else checked

    def _check(self, request: Request) -> Snapshot | SnapshotError:
        if request.key not in self._checked:
            try:
                answer = self._answers[request.key]
                self._checked[request.key] = self._origins[request.owner].accept(request, answer)
            except SnapshotError as error:
                self._checked[request.key] = error
        return self._checked[request.key]

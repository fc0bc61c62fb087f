"""Where a run writes down what happens: the interface, and a record in memory."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import ClassVar, Protocol

from manyheads.client.state import ClientState, Snapshots
from manyheads.runs.events import Event
from manyheads.runs.relations import Relations
from manyheads.runs.summary import Summary


@dataclass(frozen=True)
class Saved:
    """A run at an edge: enough to go on from there."""

    step: int
    seconds: float
    clients: list[ClientState]
    snapshots: Snapshots


GetStates = Callable[[Container[str]], tuple[list[ClientState], Snapshots]]  # without the snapshots that are known


class Record(Protocol):
    """Where a run writes down what happens."""

    lasting: ClassVar[bool]  # whether it outlives this process, so that saves are always of use
    saved_step: int | None  # of the last save

    def event(self, event: Event) -> None: ...

    def events(self) -> list[Event]:
        """All so far."""

    def save(self, step: int, seconds: float, states: GetStates) -> None: ...

    def restore(self) -> Saved | None:
        """The last save, to which events are cut back; None where there is none: from the beginning."""

    def relate(self, relations: Relations) -> None:
        """Keep what clients are to each other, instead of what was kept before."""

    def relations(self) -> Relations | None:
        """Return what was kept last."""

    def finish(self, summary: Summary) -> None: ...


class MemoryRecord:
    """The record of a run without a folder: its events and the last save, if there ever was one."""

    lasting: ClassVar[bool] = False

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._cut = 0
        self._saved: Saved | None = None
        self._relations: Relations | None = None
        self.saved_step: int | None = None

    def event(self, event: Event) -> None:
        self._events.append(event)

    def events(self) -> list[Event]:
        return list(self._events)

    def save(self, step: int, seconds: float, states: GetStates) -> None:
        known = self._saved.snapshots if self._saved else {}
        clients, new = states(frozenset(known))  # names only: an engine sends them to its workers
        used = {name for client in clients for name in client.pool}
        snapshots = {name: new[name] if name in new else known[name] for name in sorted(used)}
        self._saved, self._cut, self.saved_step = Saved(step, seconds, clients, snapshots), len(self._events), step

    def restore(self) -> Saved | None:
        del self._events[self._cut :]
        return self._saved

    def relate(self, relations: Relations) -> None:
        self._relations = relations

    def relations(self) -> Relations | None:
        return self._relations

    def finish(self, summary: Summary) -> None:
        pass

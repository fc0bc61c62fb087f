"""The record of what happens in a run: the interface, and a record in memory."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import ClassVar, Protocol

from manyheads.client.state import ClientState, Snapshots
from manyheads.runs.events import Event
from manyheads.runs.relations import Relations
from manyheads.runs.summary import Summary


@dataclass(frozen=True)
class Saved:
    """A run at an edge: all that is needed to continue from there."""

    step: int
    seconds: float
    clients: list[ClientState]
    snapshots: Snapshots


# Called with the names of the snapshots that are known already, which it leaves out.
GetStates = Callable[[Container[str]], tuple[list[ClientState], Snapshots]]


class Record(Protocol):
    """The record of what happens in a run."""

    lasting: ClassVar[bool]  # it outlives this process, so saving is always worthwhile
    saved_step: int | None  # the step of the last save

    def event(self, event: Event) -> None: ...

    def events(self) -> list[Event]:
        """Return all events so far."""

    def save(self, step: int, seconds: float, states: GetStates) -> None: ...

    def restore(self) -> Saved | None:
        """Return the last save and cut the events back to it; None if there is none, so the run begins again."""

    def keep_relations(self, relations: Relations) -> None:
        """Keep what was measured of pairs of clients, in place of an earlier measurement."""

    def keep_trace(self, trace: bytes) -> None:
        """Keep the trace of a few steps."""

    def relations(self) -> Relations | None:
        """Return the relations that were kept last."""

    def finish(self, summary: Summary) -> None: ...


class MemoryRecord:
    """The record of a run without a folder: its events and the last save, if there was one."""

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

    def keep_relations(self, relations: Relations) -> None:
        self._relations = relations

    def keep_trace(self, trace: bytes) -> None:
        pass

    def relations(self) -> Relations | None:
        return self._relations

    def finish(self, summary: Summary) -> None:
        pass

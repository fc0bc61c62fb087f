"""Who watches a run."""

from typing import TYPE_CHECKING, Protocol

from manyheads.runs.events import Event

if TYPE_CHECKING:
    from manyheads.setup.build import Ensemble


class Observer(Protocol):
    """Somebody who watches a run: a progress bar, a log, a notebook."""

    def started(self, ensemble: "Ensemble", step: int) -> None:
        """Training begins, or goes on, at `step`."""

    def progressed(self, client_steps: int) -> None:
        """So many more steps of clients were taken."""

    def happened(self, event: Event) -> None:
        """A line of metrics.jsonl was written: `event.step` and the like, by kind as in `runs/events.py`."""

    def stopping(self) -> None:
        """Somebody asked to stop; the last edge of the run is being saved."""

    def went_back(self, step: int, why: str) -> None:
        """A part of those who train was lost; all go on from the last save, at `step`."""

    def noted(self, text: str) -> None:
        """Something that a person should know."""


class SilentObserver:
    """Watches and says nothing."""

    def started(self, ensemble: "Ensemble", step: int) -> None:
        pass

    def progressed(self, client_steps: int) -> None:
        pass

    def happened(self, event: Event) -> None:
        pass

    def stopping(self) -> None:
        pass

    def went_back(self, step: int, why: str) -> None:
        pass

    def noted(self, text: str) -> None:
        pass

"""The observers of a run: the interface, and one that ignores everything."""

from typing import TYPE_CHECKING, Protocol

from manyheads.runs.events import Event

if TYPE_CHECKING:
    from manyheads.setup.build import Ensemble


class Observer(Protocol):
    """An observer of a run: a progress bar, a log, a notebook. `SilentObserver` has empty methods to inherit.

    >>> from manyheads import Experiment, train
    >>> from manyheads.training.observer import SilentObserver
    >>> class PrintEvents(SilentObserver):
    ...     def happened(self, event):
    ...         print(event.event, event.step)
    >>> training = {"steps": 1, "warmup_steps": 0, "batch_size": 8, "public_batch_size": 8}
    >>> tiny = Experiment(clients=2, data={"source": "digits"}, model={"width": 2}, training=training)
    >>> result = train(tiny, observer=PrintEvents())
    start 0
    losses 1
    evaluation 1
    taught 1
    """

    def started(self, ensemble: "Ensemble", step: int) -> None:
        """Take note that training begins, or continues, at `step`."""

    def progressed(self, client_steps: int) -> None:
        """Take note that this many more client-steps were taken."""

    def happened(self, event: Event) -> None:
        """Take note of an event, which becomes a line of metrics.jsonl (`runs/events.py`)."""

    def stopping(self) -> None:
        """Take note that somebody asked to stop; the last edge of the run is being saved."""

    def went_back(self, step: int, why: str) -> None:
        """Take note that a worker was lost; all clients continue from the last save, at `step`."""

    def noted(self, text: str) -> None:
        """Take note of something that the user should know."""


class SilentObserver:
    """An observer that ignores everything."""

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

"""How a run is asked to stop.

A stop (Ctrl-C, SIGTERM) drops what was done since the last edge and saves that edge. To have it, a run with a folder
copies weights and momentum of each client when a window begins, unless that edge was just saved: a copy takes a few
hundredths of one step. The other ways lose more: to go back to the last save costs up to ten minutes of work, and to
finish the window is not prompt.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import torch

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread a client: small models are slower with more, and results are the same bits on any CPU engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class StopNow(BaseException):
    """Raised wherever the run happens to be: what it does is dropped."""


class StopRequest:
    """Whether somebody asked to stop: by Ctrl-C or SIGTERM, of which the second leaves at once.

    Signals are heard in the main thread only; elsewhere nobody asks.
    """

    def __init__(self) -> None:
        self.asked = self.leaving = self._may_interrupt = False
        self.heard = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in SIGNALS if self.heard}

    def __enter__(self) -> "StopRequest":
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """Raise StopNow in here as soon as somebody asks, or has asked before."""
        try:
            self._may_interrupt = True
            self.check()
            yield
        finally:
            self._may_interrupt = False

    def check(self) -> None:
        """Raise StopNow where that was lost on its way, as in a destructor."""
        if self.asked and self._may_interrupt:
            raise StopNow

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.leaving = True
            self.__exit__()
            signal.raise_signal(number)
        self.asked = True
        self.check()

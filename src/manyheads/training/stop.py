"""Stopping a run by Ctrl-C or SIGTERM.

A stop drops what was done since the last edge and saves that edge. For this, a run with a folder copies weights and
momentum of each client when a window begins, unless that edge was just saved: a copy takes a few hundredths of one
step. The alternatives are worse: returning to the last save costs up to ten minutes of work, and finishing the window
is not prompt.

Other handlers: cli/__init__.py (before a run) and studies/paper/runner.py (while cells run).
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from manyheads.errors import STOP_SIGNALS


class StopNow(BaseException):
    """An exception raised wherever the run happens to be, whose current window is dropped."""


class StopRequest:
    """A listener for requests to stop, by Ctrl-C or SIGTERM; the second one leaves at once.

    It calls `must_wait` where nothing may be interrupted, as in the middle of a save. Signals reach the main thread
    only; in other threads it never hears any.
    """

    def __init__(self, must_wait: Callable[[], None]) -> None:
        self._must_wait = must_wait
        self.asked = self.leaving = self._may_interrupt = False
        self.heard = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in STOP_SIGNALS if self.heard}

    def __enter__(self) -> "StopRequest":
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """Raise StopNow in here as soon as somebody asks, or if somebody has asked before."""
        try:
            self._may_interrupt = True
            self.check()
            yield
        finally:
            self._may_interrupt = False

    def check(self) -> None:
        """Raise StopNow again if it was lost on its way, as in a destructor."""
        if self.asked and self._may_interrupt:
            raise StopNow

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.leaving = True
            self.__exit__()
            signal.raise_signal(number)
        self.asked = True
        self.check()
        self._must_wait()

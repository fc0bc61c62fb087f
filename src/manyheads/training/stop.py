"""How a run is asked to stop."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import torch

from manyheads.training.observer import Observer


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread a client: small models are slower with more, and results are the same bits on any CPU engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def stop_requests(observer: Observer) -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) asks the loop to stop at the next edge; the second leaves at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def heard(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()
        observer.stopping()

    for number in before:
        signal.signal(number, heard)
    try:
        yield stop
    finally:
        restore()

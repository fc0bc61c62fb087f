"""The command line: `main` is what `manyheads` starts. It imports next to nothing, so that Ctrl-C is heard at once."""

import atexit
import os
import signal
import sys
from types import FrameType

STOPPED = 130  # exit status, as shells have it for Ctrl-C


def main() -> None:
    """Run the command that was given."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # and not ignored, as by nohup
        signal.signal(signal.SIGINT, _hear)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # Python's own end says nothing then
    try:
        from manyheads.cli.commands import start

        start()
    except KeyboardInterrupt:
        _leave()
    finally:
        signal.signal(signal.SIGINT, before)


def _hear(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; in the middle of an import leave, since half of a module may do anything."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave() -> None:
    """End this process without anything that could raise."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h")  # a progress bar hides the cursor
    os.write(2, b"\nstopped\n")
    os._exit(STOPPED)

"""The command line. `manyheads` starts `main`, which imports next to nothing, so that Ctrl-C is heard at once.

commands.py   the list of commands, and how mistakes end        options.py   options that several commands share
runs.py       demo, run, resume, compare, evaluate, frontier, export
data.py       split, pack                                       paper.py     reproduce
early.py      checks before PyTorch is imported
"""

import atexit
import os
import signal
import sys
from types import FrameType

STOPPED = 130  # the exit status of shells after Ctrl-C


def main() -> None:
    """Run the command that was given."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not if it is ignored, as under nohup
        signal.signal(signal.SIGINT, _hear)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # so that Python ends silently
    try:
        from manyheads.cli.commands import start

        start()
    except KeyboardInterrupt:
        _leave()
    finally:
        signal.signal(signal.SIGINT, before)


def _hear(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but leave in the middle of an import: a half-imported module may do anything."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave() -> None:
    """End this process without running anything that could raise."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h")  # a progress bar hides the cursor
    os.write(2, b"\nstopped\n")
    os._exit(STOPPED)

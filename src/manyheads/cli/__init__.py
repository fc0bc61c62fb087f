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
MISTAKE = 2


def main() -> None:
    """Run the command that was given."""
    _open_standard_streams()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not if it is ignored, as under nohup
        signal.signal(signal.SIGINT, _hear)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # so that Python ends silently
    try:
        from manyheads.cli.commands import start

        start()
    except KeyboardInterrupt:
        _leave()
    except MemoryError:
        _end_without_memory()
    except (ImportError, SystemError) as error:
        from manyheads.memory import ran_out

        if not ran_out(error):
            raise
        _end_without_memory()
    finally:
        signal.signal(signal.SIGINT, before)


def _open_standard_streams() -> None:
    """Let standard streams that are closed (`>&-`) lead nowhere: otherwise files of a run would take their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _hear(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but leave in the middle of an import: a half-imported module may do anything."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_without_memory() -> None:
    """End where not even this program could be imported."""
    print("error: out of memory: there is too little to begin; raise the limit (ulimit -v)", file=sys.stderr)
    sys.exit(MISTAKE)


def _leave() -> None:
    """End this process without running anything that could raise."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h")  # a progress bar hides the cursor
    os.write(2, b"\nstopped\n")
    os._exit(STOPPED)

"""A run that kills itself with SIGKILL at a chosen moment of its writing: python killed.py FOLDER MOMENT NUMBER.

Started by test_kill.py as a process of its own.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from manyheads import Experiment, train
from tests.conftest import TINY


def die_at(moment: str, number: int) -> None:
    """Let the `number`-th call of a system call be the last: die before it, after it, or half-way through."""
    name = {"before-rename": "replace", "after-rename": "replace", "half-write": "write", "before-sync": "fsync"}[
        moment
    ]
    original, calls = getattr(os, name), 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        last = calls == number
        if last and moment.startswith("before"):
            os.kill(os.getpid(), signal.SIGKILL)
        if last and moment == "half-write":
            original(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, name, call)


if __name__ == "__main__":
    folder, moment, number = sys.argv[1:]
    die_at(moment, int(number))
    train(Experiment(**TINY).with_values(training={"save_seconds": 0.0}), Path(folder))

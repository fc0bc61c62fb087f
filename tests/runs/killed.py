"""A run in a process of its own that kills itself with SIGKILL at a chosen moment of its writing."""

import multiprocessing
import os
import signal
import warnings
from pathlib import Path
from typing import Any

from manyheads import Experiment, train
from manyheads.engine.parallel import start_method
from tests.conftest import TINY


def run_and_die(folder: Path, moment: str, number: int) -> int | None:
    """Exit code of the process."""
    forks = start_method() == "fork"
    context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
    process = context.Process(target=_run, args=(folder, moment, number))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a fork loses threads: it needs none
        process.start()
    process.join()
    return process.exitcode


def _run(folder: Path, moment: str, number: int) -> None:
    die_at(moment, number)
    train(Experiment(**TINY).with_values(training={"save_seconds": 0.0}), folder)


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

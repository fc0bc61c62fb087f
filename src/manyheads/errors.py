"""The exceptions of manyheads, as a tree; every message is one line that says what to change.

ManyheadsError
├── ConfigurationError   a key of the experiment: what was given and what is allowed
│   └── ModelError       a model that does not do what a model must
├── DataError            a data file that does not hold what it should
├── RunError             a run folder or checkpoint that cannot be used
├── SnapshotError        an answer of another client that cannot be used
├── TrainingError        a run that cannot continue (a loss that is not a number)
├── WorkerLost           a process that trained some clients is gone; the run continues from its last save
└── Stopped              somebody asked to stop; the message says how to continue
    └── Interrupted      a run in the middle of its steps, which continues from where it was saved
"""

import signal
from pathlib import Path

from manyheads.printable import abridged


class ManyheadsError(Exception):
    """Base of every error that manyheads raises on purpose. Its text is one line, whatever names stand in it."""

    def __str__(self) -> str:
        return abridged(super().__str__())


class ConfigurationError(ManyheadsError):
    """A key of the experiment holds something that is not allowed."""


class ModelError(ConfigurationError):
    """A model that could be made, but does not do what a model must."""

    def __init__(self, backbone: str, problem: str) -> None:
        self.backbone, self.problem = backbone, problem
        super().__init__(f"{backbone}: {problem}")


class DataError(ManyheadsError):
    """A data file does not hold what it should."""


class RunError(ManyheadsError):
    """A run folder or checkpoint cannot be used."""


class SnapshotError(ManyheadsError):
    """An answer of another client cannot be used."""


class TrainingError(ManyheadsError):
    """Training cannot continue."""


class WorkerLost(ManyheadsError):
    """A process that trained some of the clients is gone."""


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # by which somebody asks to stop


class Stopped(ManyheadsError):
    """Somebody asked to stop."""


class Interrupted(Stopped):
    """A run was asked to stop: it continues from its last edge, and the client-steps since then are dropped."""

    def __init__(self, folder: Path | None, step: int, dropped: int = 0) -> None:
        self.folder, self.step = folder, step
        lost = f" ({dropped:,} client-steps since then are dropped)" if dropped else ""
        self.what = f"stopped at step {step}{lost}"
        super().__init__(self.what + (f"; continue with: manyheads resume {folder}" if folder else ""))


START_AGAIN = "start the run again in another folder"  # where a run cannot be continued
LEARN_SLOWER = "lower training.learning_rate or lengthen training.warmup_steps"  # if a model has diverged


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type if it has none.

    >>> first_line(ValueError("no such key\\nand so on")), first_line(MemoryError())
    ('no such key', 'MemoryError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__

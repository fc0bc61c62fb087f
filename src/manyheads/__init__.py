"""Many heads are better than one: clients with private data teach each other.

>>> from manyheads import Experiment, train
>>> result = train(Experiment.load("my.toml"), folder="runs/mine")     # doctest: +SKIP
>>> logits = result.classifier(client=0)(images)                        # doctest: +SKIP
"""

import importlib

from manyheads.version import __version__

TYPE_CHECKING = False  # as typing has it, whose import takes a while in which nobody hears Ctrl-C

if TYPE_CHECKING:
    from manyheads.api import resume, train
    from manyheads.config.experiment import Experiment
    from manyheads.errors import ConfigurationError, DataError, Interrupted, ManyheadsError, RunError, TrainingError
    from manyheads.export.load import load_model
    from manyheads.training.observer import Observer
    from manyheads.training.result import Result


__all__ = [
    "ConfigurationError",
    "DataError",
    "Experiment",
    "Interrupted",
    "ManyheadsError",
    "Observer",
    "Result",
    "RunError",
    "TrainingError",
    "__version__",
    "load_model",
    "resume",
    "train",
]
# Imported when they are first asked for: a command that only answers a question does not wait for PyTorch.
_HOMES = {
    "manyheads.config.experiment": ("Experiment",),
    "manyheads.errors": (
        "ConfigurationError",
        "DataError",
        "Interrupted",
        "ManyheadsError",
        "RunError",
        "TrainingError",
    ),
    "manyheads.export.load": ("load_model",),
    "manyheads.training.observer": ("Observer",),
    "manyheads.training.result": ("Result",),
    "manyheads.api": ("resume", "train"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(home), name)
            return found
    raise AttributeError(f"module 'manyheads' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

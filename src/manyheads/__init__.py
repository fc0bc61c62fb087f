"""Many heads are better than one: clients with private data teach each other.

>>> from manyheads import Experiment, train
>>> result = train(Experiment.load("my.toml"), folder="runs/mine")     # doctest: +SKIP
>>> logits = result.classifier(client=0)(images)                        # doctest: +SKIP
"""

from manyheads.errors import ConfigurationError, DataError, ManyheadsError, RunError, TrainingError
from manyheads.experiment import Experiment
from manyheads.export import load_model
from manyheads.training import Interrupted, Observer, Result, resume, train
from manyheads.version import __version__

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

"""The algorithms by name. Code from elsewhere is named by its path: `name = "my_lab.gossip:Gossip"`."""

import dataclasses
import importlib
from typing import Any

from manyheads.algorithms.averaging import Averaging
from manyheads.algorithms.base import Algorithm
from manyheads.algorithms.fedmd import FedMD
from manyheads.algorithms.mhd import MHD
from manyheads.algorithms.separate import Separate
from manyheads.config.experiment import AlgorithmConfig
from manyheads.config.messages import build, nearest
from manyheads.errors import ConfigurationError

ALGORITHMS: dict[str, type[Algorithm]] = {
    "mhd": MHD,
    "averaging": Averaging,
    "fedmd": FedMD,
    "separate": Separate,
}
ALSO_KNOWN = {
    "fedavg": 'FedAvg is "averaging" on the complete graph',
    "gossip": 'gossip is "averaging" on any graph but the complete one',
    "supervised": 'that is "separate" with clients = 1',
    "local": 'that is "separate"',
}


def make_algorithm(config: AlgorithmConfig) -> Algorithm:
    """The algorithm that `[algorithm]` describes."""
    made: Algorithm = build(_find(config.name), config.options(), "algorithm")
    return made


def with_defaults(config: AlgorithmConfig, classes: int) -> AlgorithmConfig:
    """`[algorithm]` with every key that its algorithm has."""
    made = make_algorithm(config).completed(classes)
    return AlgorithmConfig(name=config.name, **dataclasses.asdict(made))  # type: ignore[call-overload]


def _find(name: str) -> Any:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(
            f'algorithm.name = "{name}": unknown algorithm; '
            f"{ALSO_KNOWN.get(name.lower()) or nearest(name, ALGORITHMS)}; "
            'your own is named "package.module:Class"'
        )
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError(f'algorithm.name = "{name}": cannot be imported: {error}') from None
    is_algorithm = isinstance(found, type) and issubclass(found, Algorithm) and dataclasses.is_dataclass(found)
    if not is_algorithm:
        raise ConfigurationError(
            f'algorithm.name = "{name}": not a frozen dataclass below manyheads.algorithms.base.Algorithm '
            "(docs/adding.md)"
        )
    return found

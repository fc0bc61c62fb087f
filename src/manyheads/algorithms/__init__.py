"""The algorithms by name. Code from elsewhere is named by its path: `name = "my_lab.gossip:Gossip"`."""

import importlib
from dataclasses import asdict

from manyheads.algorithms.base import Algorithm
from manyheads.algorithms.mhd import MHD
from manyheads.algorithms.separate import Separate
from manyheads.errors import ConfigurationError
from manyheads.experiment import OpenSection, build, nearest

ALGORITHMS: dict[str, type[Algorithm]] = {"mhd": MHD, "separate": Separate}


def make_algorithm(config: OpenSection) -> Algorithm:
    """The algorithm that `[algorithm]` describes."""
    return build(_find(config.name), config.options(), "algorithm")


def with_defaults(config: OpenSection) -> OpenSection:
    """`[algorithm]` with every key that its algorithm has."""
    return OpenSection(name=config.name, **asdict(make_algorithm(config)))  # type: ignore[call-overload]


def _find(name: str) -> type[Algorithm]:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(
            f'algorithm.name = "{name}": unknown algorithm; {nearest(name, ALGORITHMS)}; '
            'your own is named "package.module:Class"'
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f'algorithm.name = "{name}": cannot be imported: {error}') from None
    if not isinstance(found, type) or not hasattr(found, "__dataclass_fields__"):
        raise ConfigurationError(f'algorithm.name = "{name}": must be a frozen dataclass (docs/adding.md)')
    return found

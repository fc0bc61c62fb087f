"""The algorithms by name. Code from elsewhere is named by its path: `name = "my_lab.gossip:Gossip"`.

Confidences: exchange/named_confidences.py.
"""

import dataclasses
from typing import Any

from manyheads.algorithms.averaging import Averaging
from manyheads.algorithms.base import Algorithm
from manyheads.algorithms.fedmd import FedMD
from manyheads.algorithms.mhd import MHD
from manyheads.algorithms.separate import Separate
from manyheads.config.experiment import AlgorithmConfig
from manyheads.config.knobs import RunSize, check_name
from manyheads.config.messages import build_section
from manyheads.imports import Trust, import_named

ALGORITHMS: dict[str, type[Algorithm]] = {
    "mhd": MHD,
    "averaging": Averaging,
    "fedmd": FedMD,
    "separate": Separate,
}
A_CLASS = "a frozen dataclass that inherits from manyheads.algorithms.base.Algorithm (docs/adding.md)"


def make_algorithm(config: AlgorithmConfig, trust: Trust | None = None) -> Algorithm:
    """Return the algorithm that `[algorithm]` describes; code that it names is imported as far as `trust` allows."""
    trust = trust or Trust()
    made: Algorithm = build_section(_find(config.name, trust), config.options(), "algorithm")
    made.check_code(trust)
    return made


def with_defaults(config: AlgorithmConfig, size: RunSize, trust: Trust | None = None) -> AlgorithmConfig:
    """Return `[algorithm]` with every key that its algorithm has."""
    made = make_algorithm(config, trust).with_defaults(size)
    return AlgorithmConfig(name=config.name, **dataclasses.asdict(made))  # type: ignore[call-overload]


def _find(name: str, trust: Trust) -> Any:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    check_name(name)
    return import_named(name, "algorithm.name", _is_algorithm, A_CLASS, trust)


def _is_algorithm(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Algorithm) and dataclasses.is_dataclass(found)

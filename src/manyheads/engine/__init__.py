"""Engines by name: ways to run the same window."""

from collections.abc import Callable

from manyheads.engine.base import Engine, Options
from manyheads.engine.parallel import Parallel
from manyheads.engine.plain import Here, Plain
from manyheads.engine.ray import RayEngine
from manyheads.ensemble import Ensemble

ENGINES: dict[str, Callable[[Ensemble, Options], Engine]] = {
    "plain": lambda ensemble, options: Here(ensemble, Plain()),
    "parallel": Parallel,
    "ray": RayEngine,
}

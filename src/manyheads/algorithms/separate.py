"""Separate training, on private data only. With one client that holds all private data: *supervised*."""

from pydantic.dataclasses import dataclass

from manyheads.algorithms.base import Algorithm
from manyheads.config.knobs import NoKnobs
from manyheads.config.types import CHECKED


@dataclass(frozen=True, config=CHECKED)
class Separate(NoKnobs, Algorithm):
    """Private training without public data, auxiliary heads or exchanges: the defaults of every algorithm."""

"""Clients left alone: private training only. With one client that holds all private data: *supervised*."""

from pydantic.dataclasses import dataclass

from manyheads.algorithms.base import Algorithm
from manyheads.config.types import CHECKED


@dataclass(frozen=True, config=CHECKED)
class Separate(Algorithm):
    """Sees no public data, has no auxiliary heads, exchanges nothing: what an algorithm is without more."""

"""What an engine is: a way to run a window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from manyheads.algorithms.base import Algorithm
from manyheads.client import Client


@dataclass(frozen=True)
class Window:
    """Steps start ... stop - 1, between two edges of the run: between them no client needs any other."""

    start: int
    stop: int


@dataclass(frozen=True)
class WindowLosses:
    """Every loss of a window."""

    terms: tuple[str, ...]
    values: Tensor  # clients x steps x terms, on the CPU


Progress = Callable[[int], None]  # is told how many client-steps were taken


class Engine(Protocol):
    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        """Let each client take its steps of the window, alone."""

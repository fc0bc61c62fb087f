"""Engines by name: ways to run the same window. An engine, and PyTorch with it, is imported when it is asked for.

`plain`, the reference, is one worker in this process (plain.py); the workers of `parallel` are processes, those of
`ray` are actors (remote.py is what both share). `cuda` is one worker in this process with another trainer, which runs
a window as one graph of all clients' steps instead of a loop. When a worker is lost (`WorkerLost`), the run goes back
to its last save.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manyheads.engine.base import Engine
    from manyheads.engine.options import ResolvedOptions
    from manyheads.setup.build import Ensemble


def _plain(ensemble: "Ensemble", options: "ResolvedOptions") -> "Engine":
    from manyheads.engine.plain import LocalEngine, PlainTrainer

    return LocalEngine(ensemble, PlainTrainer(), options.precision)


def _parallel(ensemble: "Ensemble", options: "ResolvedOptions") -> "Engine":
    from manyheads.engine.parallel import ParallelEngine

    return ParallelEngine(ensemble, options)


def _cuda(ensemble: "Ensemble", options: "ResolvedOptions") -> "Engine":
    from manyheads.engine.cuda.trainer import CudaTrainer
    from manyheads.engine.plain import LocalEngine

    return LocalEngine(ensemble, CudaTrainer(options.precision), options.precision)


def _ray(ensemble: "Ensemble", options: "ResolvedOptions") -> "Engine":
    from manyheads.engine.ray.engine import RayEngine

    return RayEngine(ensemble, options)


ENGINES: dict[str, Callable[["Ensemble", "ResolvedOptions"], "Engine"]] = {
    "plain": _plain,
    "parallel": _parallel,
    "cuda": _cuda,
    "ray": _ray,
}

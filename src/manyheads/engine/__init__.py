"""Engines by name: ways to run the same window."""

from collections.abc import Callable

import torch

from manyheads.config.messages import nearest
from manyheads.engine.base import Engine, EngineOptions
from manyheads.engine.cuda.graphs import CudaTrainer
from manyheads.engine.parallel import Parallel
from manyheads.engine.plain import LocalEngine, PlainTrainer
from manyheads.engine.precision import precision_named
from manyheads.engine.ray.engine import RayEngine
from manyheads.errors import ConfigurationError
from manyheads.setup.build import Ensemble
from manyheads.setup.device import device_named

ENGINES: dict[str, Callable[[Ensemble, EngineOptions], Engine]] = {
    "plain": lambda ensemble, options: LocalEngine(ensemble, PlainTrainer(), options.precision),
    "parallel": Parallel,
    "cuda": lambda ensemble, options: LocalEngine(ensemble, CudaTrainer(options.precision), options.precision),
    "ray": RayEngine,
}


def options_for(
    engine: str,
    device: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_client: float | None = None,
    precision: str | None = None,
) -> EngineOptions:
    """What was said, if the engine understands it, and what follows where nothing was said."""
    if engine not in ENGINES:
        raise ConfigurationError(f"--engine {engine}: unknown engine; {nearest(engine, ENGINES)}")
    belongs = {
        "workers": (workers, "parallel"),
        "address": (address, "ray"),
        "gpus-per-client": (gpus_per_client, "ray"),
    }
    for name, (value, owner) in belongs.items():
        if value is not None and engine != owner:
            raise ConfigurationError(f"--{name} {value}: belongs to --engine {owner}, not to {engine}; leave it out")
    device = device or ("cuda" if engine == "cuda" else "cpu")
    if engine == "cuda" and device_named(device, "take --engine parallel").type == "cpu":
        raise ConfigurationError("--engine cuda --device cpu: it needs a GPU; for a CPU take --engine parallel")
    where = torch.device("cuda") if engine == "ray" and device != "cpu" else device_named(device)
    return EngineOptions(device, workers, address, gpus_per_client, precision_named(precision, where))


def home(engine: str, device: str) -> str:
    """Where the process that was started keeps the clients: those of a cluster may train on GPUs that are not here."""
    return "cpu" if engine == "ray" else device

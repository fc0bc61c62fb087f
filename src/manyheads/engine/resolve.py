"""What follows where nothing was said about an engine, and whether the device is there."""

from dataclasses import asdict

import torch

from manyheads.engine.options import EngineOptions, ResolvedOptions
from manyheads.setup.device import device_named


def resolve_options(options: EngineOptions) -> ResolvedOptions:
    """Fill in what was not said, and refuse a device that is not there."""
    engine = options.engine or "plain"
    device = options.usual_device()
    # With Ray another machine may have it, which is for the actors to find out.
    found = torch.device(device) if engine == "ray" else device_named(device, options.without_gpu())
    precision = options.precision or ("float32" if found.type == "cpu" else "bf16")
    return ResolvedOptions(**asdict(options) | {"engine": engine, "device": device, "precision": precision})


def home(options: ResolvedOptions) -> str:
    """Where the process that was started keeps the clients: those of a cluster may train on GPUs that are not here."""
    return "cpu" if options.engine == "ray" else options.device

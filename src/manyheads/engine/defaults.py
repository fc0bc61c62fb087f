"""The defaults of engine options, and the device that an engine needs."""

from dataclasses import asdict

import torch

from manyheads.engine.options import EngineOptions, ResolvedOptions
from manyheads.setup.device import device_named


def resolve_options(options: EngineOptions) -> ResolvedOptions:
    """Fill in the defaults, and refuse a device that this machine does not have."""
    engine = options.engine or "plain"
    device = options.usual_device()
    # With Ray another machine may have it: its actors find out.
    found = torch.device(device) if engine == "ray" else device_named(device, options.without_gpu())
    precision = options.precision or ("float32" if found.type == "cpu" else "bf16")
    return ResolvedOptions(**asdict(options) | {"engine": engine, "device": device, "precision": precision})


def local_device(options: ResolvedOptions) -> str:
    """Return the device for clients in this process: those of a cluster may train on GPUs of other machines."""
    return "cpu" if options.engine == "ray" else options.device

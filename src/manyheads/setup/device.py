"""The devices of this machine, by name."""

import torch

from manyheads.config.device import check_device, no_gpu
from manyheads.errors import ConfigurationError


def device_named(name: str, instead: str = "use cpu") -> torch.device:
    """Return a device of this machine; refuse one that it does not have."""
    check_device(name)
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise no_gpu(name, instead)
    if (device.index or 0) >= torch.cuda.device_count() > 0:
        raise ConfigurationError(f"--device {name}: this machine has CUDA devices 0 to {torch.cuda.device_count() - 1}")
    return device

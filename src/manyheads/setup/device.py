"""Devices by name."""

import torch

from manyheads.errors import ConfigurationError


def device_named(name: str, instead: str = "take cpu") -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f"--device {name}: unknown device; cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigurationError(f"--device {name}: unknown device; cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f"--device {name}: this machine has no CUDA device that PyTorch can use; {instead}")
    return device

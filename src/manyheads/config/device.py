"""The names of devices."""

import re

from manyheads.errors import ConfigurationError


def check_device(name: str) -> None:
    """Refuse what is not the name of a device. Only PyTorch knows whether this machine has it."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise ConfigurationError(f"--device {name}: unknown device; cpu or cuda")

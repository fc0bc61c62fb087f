"""The names of devices."""

import ctypes
import os
import re
import sys

from manyheads.errors import ConfigurationError


def check_device(name: str) -> None:
    """Refuse what is not the name of a device. Only PyTorch knows whether this machine has it."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise ConfigurationError(f"--device {name}: unknown device; cpu or cuda")


def check_gpu(name: str, instead: str = "use cpu") -> None:
    """Refuse a GPU where there is no driver of one: PyTorch, which takes seconds to import, would find none either."""
    if name.startswith("cuda") and not _has_driver():
        raise no_gpu(name, instead)


def no_gpu(name: str, instead: str) -> ConfigurationError:
    """Return what to tell where a GPU was asked for and there is none."""
    return ConfigurationError(f"--device {name}: this machine has no CUDA device that PyTorch can use; {instead}")


def _has_driver() -> bool:
    if os.path.exists("/dev/kfd"):  # AMD's
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True

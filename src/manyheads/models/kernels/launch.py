"""Compilation of our kernels: plain functions that Triton compiles when one is first needed."""

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


@cache
def can_compile() -> bool:
    """Tell whether Triton is there: not every build of PyTorch for a GPU has it."""
    return find_spec("triton") is not None


def compiled(
    module: dict[str, Any], kernels: Sequence[Callable[..., Any]], helpers: Sequence[Callable[..., Any]] = ()
) -> SimpleNamespace:
    """Compile functions of a module, given by its `globals()`; each is returned under its name without underscore.

    Triton is missing on machines without a GPU, so it is imported only when kernels are needed. Kernels look in their
    module for what they call and name (helpers, `tl`, `constexpr`).
    """
    triton = import_module("triton")
    found = {each.__name__: triton.jit(each) for each in helpers}
    module.update(found, tl=triton.language, constexpr=triton.language.constexpr)
    return SimpleNamespace(**{each.__name__.removeprefix("_"): triton.jit(each) for each in kernels})


def on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make the device of x the current one for Triton; on the CPU it interprets, for tests."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()

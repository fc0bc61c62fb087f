"""Kernels of our own: plain functions that Triton compiles when one is first wanted."""

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
    """Not every build of PyTorch for a GPU brings Triton."""
    return find_spec("triton") is not None


def compiled(
    module: dict[str, Any], kernels: Sequence[Callable[..., Any]], helpers: Sequence[Callable[..., Any]] = ()
) -> SimpleNamespace:
    """Functions of a module, given by its `globals()`, as kernels; each under its name without the underscore.

    Triton is missing where no GPU is, so only whoever needs kernels loads it. What they call and what they name
    (helpers, `tl`, `constexpr`) they look for in their module.
    """
    triton = import_module("triton")
    found = {each.__name__: triton.jit(each) for each in helpers}
    module.update(found, tl=triton.language, constexpr=triton.language.constexpr)
    return SimpleNamespace(**{each.__name__.removeprefix("_"): triton.jit(each) for each in kernels})


def on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device; on the CPU it interprets, for tests."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()

"""The optimizer of a captured step: one sweep over a client's flat tensor."""

# The kernel's arguments are addresses and numbers that only Triton knows the type of.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, TypeAlias

from torch import Tensor

from manyheads.models.kernels.launch import compiled, on_device_of

constexpr: TypeAlias = Any  # from triton.language, once `_kernels` has been called
tl: Any = None
BLOCK = 2048


def sgd(
    values: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    low: Tensor | None,
    low_gradient: Tensor | None,
    rate_1: Tensor,
    *,
    weight_decay: float,
    momentum_factor: float,
    fused: bool = False,
) -> None:
    """Take a step of SGD with momentum, as `Client.step` does. `low` (or None) receives the new values in few bits.

    The gradient of a parameter lies either in `gradient` or in `low_gradient`; the other is zero there. On a GPU it is
    one kernel that reads and writes everything once; with `fused`, for tests, elsewhere, too.
    """
    if not (fused or values.is_cuda):
        whole = gradient if low_gradient is None else gradient + low_gradient
        momentum.mul_(momentum_factor).add_(whole.add(values, alpha=weight_decay))
        values.sub_(rate_1 * momentum)
        if low is not None:
            low.copy_(values)
        return
    size = values.numel()
    with on_device_of(values):
        _kernels().sgd[(-(-size // BLOCK),)](
            *(values, momentum, gradient, low, low_gradient, rate_1, size),
            DECAY=weight_decay,
            FACTOR=momentum_factor,
            LOW=low is not None,
            BLOCK=BLOCK,
        )


@cache
def _kernels() -> SimpleNamespace:
    return compiled(globals(), [_sgd])


def _sgd(
    values, momentum, gradient, low, low_gradient, rate_1, size, DECAY: constexpr, FACTOR: constexpr, LOW: constexpr,
    BLOCK: constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    value, grad = tl.load(values + at, there), tl.load(gradient + at, there)
    if LOW:
        grad += tl.load(low_gradient + at, there).to(grad.dtype)
    step = tl.load(momentum + at, there) * FACTOR + (grad + value * DECAY)
    value -= step * tl.load(rate_1)
    tl.store(momentum + at, step, there)
    tl.store(values + at, value, there)
    if LOW:
        tl.store(low + at, value.to(low.dtype.element_ty), there)

"""Pooling that keeps the size of a feature map, in one sweep on a GPU."""

# The kernels' arguments are addresses and numbers that only Triton knows the type of.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.models.kernels.launch import compiled, on_device_of

# From triton.language, once `_kernels` has been called.
constexpr: TypeAlias = Any
tl: Any = None
BLOCK = 1024  # elements of a program: in bfloat16 each of its threads loads 16 bytes at a time
MOST = 2**31 - BLOCK  # elements that it can count


def fused_pool(x: Tensor) -> Tensor:
    """Pool like `plain_pool`, with the same bits, also of the gradient: rounding happens in the same order."""
    if not suits_the_kernels(x):
        raise ValueError(f"pooling of x {x.dtype} {tuple(x.shape)}: not what the kernels can do")
    y: Tensor = _FusedPool.apply(x)
    return y


def suits_the_kernels(x: Tensor) -> bool:
    """Tell whether images lie in memory pixel by pixel and the numbers of their elements fit into 32 bits."""
    fits = x.is_floating_point() and x.ndim == 4 and 0 < x.numel() <= MOST
    return fits and x.is_contiguous(memory_format=torch.channels_last)


class _FusedPool(torch.autograd.Function):
    """The autograd function; it keeps nothing for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _swept(_kernels().means, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return _swept(_kernels().gradient, dy.contiguous(memory_format=torch.channels_last))


def _swept(kernel: Any, x: Tensor) -> Tensor:
    (_, channels, height, width), size, y = x.shape, x.numel(), torch.empty_like(x)
    with on_device_of(x):
        # Without fusion: half of a tiny number is rounded before it is added to another.
        kernel[(-(-size // BLOCK),)](x, y, size, H=height, W=width, C=channels, BLOCK=BLOCK, enable_fp_fusion=False)
    return y


@cache
def _kernels() -> SimpleNamespace:
    return compiled(globals(), [_means, _gradient], helpers=[_pixels, _sum, _half, _received])


def _pixels(size, H: constexpr, W: constexpr, C: constexpr, BLOCK: constexpr):
    """Return the addresses of a program's elements, which of them exist, and their rows and columns."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return at, at < size, at // (W * C) % H, at // C % W


def _sum(one, two):
    """Add in float32, as PyTorch does (unless the numbers have more bits), and round to their type."""
    wide = tl.float64 if one.dtype == tl.float64 else tl.float32
    return (one.to(wide) + two.to(wide)).to(one.dtype)


def _half(value):
    wide = tl.float64 if value.dtype == tl.float64 else tl.float32
    return (value.to(wide) * 0.5).to(value.dtype)


def _means(x, y, size, H: constexpr, W: constexpr, C: constexpr, BLOCK: constexpr):
    """Average each pixel with the one below, do the same on its right, and average both."""
    at, there, h, w = _pixels(size, H, W, C, BLOCK)
    below, right = h < H - 1, w < W - 1
    # Loads at a fixed distance, behind a mask that is the same for all channels of a pixel, are wide ones.
    own, under = tl.load(x + at, there), tl.load(x + at + W * C, there & below)
    beside, across = tl.load(x + at + C, there & right), tl.load(x + at + (W * C + C), there & below & right)
    mean = _half(_sum(own, tl.where(below, under, own)))
    next_mean = _half(_sum(beside, tl.where(below, across, beside)))
    tl.store(y + at, _half(_sum(mean, tl.where(right, next_mean, mean))), there)


def _received(own, before, last):
    """Return what a pixel receives along one axis.

    It is half of its own gradient (twice at the end of the axis) plus half of that of the pixel before (zero if there
    is none). Autograd adds in this order, zeros, too.
    """
    own = _half(own)
    return _sum(_sum(own, tl.where(last, own, tl.zeros_like(own))), _half(before))


def _gradient(dy, dx, size, H: constexpr, W: constexpr, C: constexpr, BLOCK: constexpr):
    """Compute the gradient of the means by column, then by row; for the row above as well."""
    at, there, h, w = _pixels(size, H, W, C, BLOCK)
    above, left, last = there & (h > 0), there & (w > 0), w == W - 1
    own, beside = tl.load(dy + at, there, 0.0), tl.load(dy + at - C, left, 0.0)
    over, across = tl.load(dy + at - W * C, above, 0.0), tl.load(dy + at - (W * C + C), above & left, 0.0)
    received = _received(_received(own, beside, last), _received(over, across, last), h == H - 1)
    tl.store(dx + at, received, there)

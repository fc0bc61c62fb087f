"""Dropout as one sweep on a GPU, with masks that are a pure function of (key, pass, element)."""

# The kernel's arguments are addresses and numbers that only Triton knows the type of.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.models.kernels.launch import compiled, on_device_of

# From triton.language, once `_kernels` has been called.
constexpr: TypeAlias = Any
tl: Any = None
WORD = 2**32 - 1
MULTIPLIER = 0x45D9F3B  # below 2^31: its product with a 32-bit word fits into int64, so no device has to overflow
NEXT_PASS = 0x9E3779B97F4A7C15  # odd: successive passes get keys that are far apart
KERNEL_BLOCK = 2048  # elements of a program on a GPU
MOST = 2**31 - KERNEL_BLOCK  # elements that it can count


def scale_of_kept(rate: float) -> float:
    return 1.0 / (1.0 - rate) if rate < 1.0 else 0.0


def signed_word(word: int) -> int:
    """Return a word as an int64, which wraps around as the words of a key do."""
    return (word + 2**63) % 2**64 - 2**63


def keep_threshold(rate: float) -> int:
    return round(rate * 2**32)


def fused_dropout(x: Tensor, key: Tensor, rate: float, *, parts: tuple[int, ...], before: int = 0) -> Tensor:
    """Drop elements of x in one sweep, each part of the batch with the mask of its own pass, after `before` passes.

    The gradient draws its masks again, which is cheaper than keeping them.
    """
    each = x.numel() // max(1, len(x))
    starts = tuple(accumulate((size * each for size in parts), initial=0))
    if sum(parts) != len(x) or not suits_the_kernel(x, rate):
        raise ValueError(f"dropout {rate}, parts {parts} of x {x.dtype} {tuple(x.shape)}: not what the kernel can do")
    y: Tensor = _FusedDropout.apply(x, key, rate, starts, before)  # type: ignore[no-untyped-call]
    return y


def suits_the_kernel(x: Tensor, rate: float) -> bool:
    """Tell whether elements lie in the order of their numbers, and these and the threshold fit into 32 bits."""
    fits = x.is_floating_point() and x.ndim > 0 and 0 < x.numel() <= MOST and keep_threshold(rate) <= WORD
    return fits and x.is_contiguous(memory_format=_order(x))


def _order(x: Tensor) -> torch.memory_format:
    return torch.channels_last if x.ndim == 4 else torch.contiguous_format


class _FusedDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Tensor, rate: float, starts: tuple[int, ...], before: int) -> Tensor:
        ctx.save_for_backward(key)
        ctx.rest = (rate, starts, before)
        return _dropped(x, key, rate, starts, before)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (key,) = ctx.saved_tensors
        return _dropped(dy.contiguous(memory_format=_order(dy)), key, *ctx.rest), None, None, None, None


def _dropped(x: Tensor, key: Tensor, rate: float, starts: tuple[int, ...], before: int) -> Tensor:
    y = torch.empty_like(x)
    longest = max(stop - start for start, stop in pairwise(starts))
    scale = torch.ones((), dtype=x.dtype, device="cpu").mul_(scale_of_kept(rate)).item()  # as a mask of x's type has it
    with on_device_of(x):
        _kernels().drop[-(-longest // KERNEL_BLOCK), len(starts) - 1](
            *(x, y, key, signed_word((before + 1) * NEXT_PASS), signed_word(NEXT_PASS)),
            WIDE=x.dtype == torch.float64,
            THRESHOLD=keep_threshold(rate),
            SCALE=scale,
            STARTS=starts,
            PARTS=len(starts) - 1,
            MULTIPLIER=MULTIPLIER,
            BLOCK=KERNEL_BLOCK,
        )
    return y


@cache
def _kernels() -> SimpleNamespace:
    return compiled(globals(), [_drop], helpers=[_scrambled])


def _scrambled(word, part, MULTIPLIER: constexpr):
    word ^= part
    return (word ^ (word >> 16)) * MULTIPLIER


def _drop(
    x, y, key_1, first, next_pass, WIDE: constexpr, THRESHOLD: constexpr, SCALE: constexpr, STARTS: constexpr,
    PARTS: constexpr, MULTIPLIER: constexpr, BLOCK: constexpr,
):  # fmt: skip
    """Drop elements of one block of a part. Words of 32 bits wrap around by themselves."""
    part, start, stop = tl.program_id(1), STARTS[0], STARTS[1]
    for other in tl.static_range(1, PARTS):
        start = tl.where(part == other, STARTS[other], start)
        stop = tl.where(part == other, STARTS[other + 1], stop)
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = element < stop - start
    key = tl.load(key_1) + first + part * next_pass
    word = _scrambled(element.to(tl.uint32), key.to(tl.uint32), MULTIPLIER)
    word = _scrambled(word, (key >> 32).to(tl.uint32), MULTIPLIER)
    word = _scrambled(word, 0, MULTIPLIER)
    word ^= word >> 16
    value = tl.load(x + start + element, there, 0.0).to(tl.float64 if WIDE else tl.float32)
    value *= tl.where(word >= THRESHOLD, tl.full([BLOCK], SCALE, value.dtype), 0.0)
    tl.store(y + start + element, value.to(y.dtype.element_ty), there)

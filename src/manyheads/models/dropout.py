"""Dropout whose draws have names, and the fence around code that draws from torch's own generator.

`nn.Dropout` draws from a global generator, whose state would have to be saved, and whose draws differ between CPU and
GPU.
"""

# The kernel's arguments are addresses and numbers that only Triton knows the type of.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from manyheads.models.launch import compiled, on_device_of

# From triton.language, once `_kernels` has been called.
constexpr: TypeAlias = Any
tl: Any = None

WORD = 2**32 - 1
MULTIPLIER = 0x45D9F3B  # below 2^31: its product with a 32-bit word fits into int64, so no device has to overflow
BLOCK = 2**20  # elements at a time: such a block stays in a processor's cache, which makes it five times as fast
NEXT_PASS = 0x9E3779B97F4A7C15  # odd: successive passes get keys that are far apart
KERNEL_BLOCK = 2048  # elements of a program on a GPU
MOST = 2**31 - KERNEL_BLOCK  # elements that it can count


class Dropout(nn.Dropout):
    """As `nn.Dropout`, with a mask that is a pure function of (key, pass, element): the same bits on every device.

    `begin_step` gives it a key; each pass in training mode since then has a mask of its own.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.parts: tuple[int, ...] | None = None  # of a batch that is several passes in one (norm.py, `in_parts`)
        self.begin_step(0)

    def begin_step(self, key: int | Tensor) -> None:
        """A number or, for a captured step, an int64 on the device."""
        self._key, self._passes = key, 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        shapes = [torch.Size((size, *x.shape[1:])) for size in self.parts] if self.parts else [x.shape]
        before, self._passes = self._passes, self._passes + len(shapes)
        if isinstance(self._key, Tensor) and self._key.is_cuda and _suits_the_kernel(x, self.p):
            return fused_dropout(x, self._key, self.p, parts=self.parts or (len(x),), before=before)
        keys = [_key_of_pass(self._key, number) for number in range(before + 1, self._passes + 1)]
        masks = [keep_mask(shape, key, self.p, x.device) for shape, key in zip(shapes, keys, strict=True)]
        mask = masks[0] if len(masks) == 1 else torch.cat(masks)
        return x * mask.to(x.dtype).mul_(_scale(self.p))


def _scale(rate: float) -> float:
    return 1.0 / (1.0 - rate) if rate < 1.0 else 0.0


def _key_of_pass(key: int | Tensor, number: int) -> int | Tensor:
    return key + _signed(number * NEXT_PASS) if isinstance(key, Tensor) else (key + number * NEXT_PASS) % 2**64


def _signed(word: int) -> int:
    """As an int64, which wraps around as the words of a key do."""
    return (word + 2**63) % 2**64 - 2**63


def keep_mask(shape: torch.Size, key: int | Tensor, rate: float, device: torch.device) -> Tensor:
    """Which elements stay: those whose number, scrambled with the key, is not among the lowest `rate` of all words.

    Elements are numbered by what they are, not by where they lie. Those of images are numbered pixel by pixel, which
    is also how they mostly lie in memory.
    """
    keep = torch.empty(shape.numel(), dtype=torch.bool, device=device)
    for start in range(0, len(keep), BLOCK):
        block = keep[start : start + BLOCK]
        word = torch.arange(start, start + len(block), device=device)
        for part in (key & WORD, key >> 32 & WORD, 0):
            word ^= part
            word ^= word >> 16
            word *= MULTIPLIER
            word &= WORD
        word ^= word >> 16
        torch.ge(word, _threshold(rate), out=block)
    if len(shape) != 4:
        return keep.view(shape)
    samples, channels, height, width = shape
    return keep.view(samples, height, width, channels).permute(0, 3, 1, 2)


def _threshold(rate: float) -> int:
    return round(rate * 2**32)


def fused_dropout(x: Tensor, key: Tensor, rate: float, *, parts: tuple[int, ...], before: int = 0) -> Tensor:
    """x with the masks of the passes after the first `before`, one for each part of the batch, in one sweep.

    The gradient's masks are drawn again: that is cheaper than to keep them.
    """
    each = x.numel() // max(1, len(x))
    starts = tuple(accumulate((size * each for size in parts), initial=0))
    if sum(parts) != len(x) or not _suits_the_kernel(x, rate):
        raise ValueError(f"dropout {rate}, parts {parts} of x {x.dtype} {tuple(x.shape)}: not what the kernel can do")
    y: Tensor = _FusedDropout.apply(x, key, rate, starts, before)  # type: ignore[no-untyped-call]
    return y


def _suits_the_kernel(x: Tensor, rate: float) -> bool:
    """Elements lie in memory in the order of their numbers; these and the threshold fit into 32 bits."""
    fits = x.is_floating_point() and x.ndim > 0 and 0 < x.numel() <= MOST and _threshold(rate) <= WORD
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
    scale = torch.ones((), dtype=x.dtype, device="cpu").mul_(_scale(rate)).item()  # as a mask of x's type has it
    with on_device_of(x):
        _kernels().drop[-(-longest // KERNEL_BLOCK), len(starts) - 1](
            *(x, y, key, _signed((before + 1) * NEXT_PASS), _signed(NEXT_PASS)),
            WIDE=x.dtype == torch.float64,
            THRESHOLD=_threshold(rate),
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
    """A program takes a block of a part. Words of 32 bits wrap around by themselves."""
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


def dropouts(model: nn.Module) -> list[Dropout]:
    """Those that drop anything and so want a key at each step, in a fixed order."""
    return [module for module in model.modules() if isinstance(module, Dropout) and module.p > 0.0]


def begin_step(layers: list[Dropout], rng: np.random.Generator) -> None:
    """A key of its own for each layer."""
    for layer, key in zip(layers, rng.integers(2**63, size=len(layers)), strict=True):
        layer.begin_step(int(key))


def named_dropout(model: nn.Module) -> None:
    """Put a Dropout in the place of every plain `nn.Dropout`; one that is used in several places stays one."""
    swapped: dict[nn.Module, Dropout] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if name and type(module) is nn.Dropout:
            model.set_submodule(name, swapped.setdefault(module, Dropout(module.p)))


@contextlib.contextmanager
def seeded(rng: np.random.Generator, device: torch.device | str = "cpu") -> Iterator[None]:
    """For code of others, which draws from torch's generator: it follows ours, and is afterwards as it was."""
    where, key = torch.device(device), int(rng.integers(2**63))
    cuda = [torch.cuda.current_device() if where.index is None else where.index] if where.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(key)
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(key)
        yield

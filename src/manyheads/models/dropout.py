"""Dropout whose draws have names, and a guard for code that draws from torch's own generator.

`nn.Dropout` draws from a global generator, whose state would have to be saved and whose draws differ between CPU and
GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from manyheads.models.kernels.dropout import (
    MULTIPLIER,
    NEXT_PASS,
    WORD,
    fused_dropout,
    keep_threshold,
    scale_of_kept,
    signed_word,
    suits_the_kernel,
)

BLOCK = 2**20  # elements at a time: such a block stays in a processor's cache, which makes it five times as fast


class Dropout(nn.Dropout):
    """Dropout with a mask that is a pure function of (key, pass, element): the same bits on every device.

    `begin_step` sets the key; from then on each pass in training mode has its own mask.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.parts: tuple[int, ...] | None = None  # of a batch that is several passes in one (norm.py, `in_parts`)
        self.begin_step(0)

    def begin_step(self, key: int | Tensor) -> None:
        """Set the key: a number or, in a captured step, an int64 tensor on the device."""
        self._key, self._passes = key, 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        shapes = [torch.Size((size, *x.shape[1:])) for size in self.parts] if self.parts else [x.shape]
        before, self._passes = self._passes, self._passes + len(shapes)
        if isinstance(self._key, Tensor) and self._key.is_cuda and suits_the_kernel(x, self.p):
            return fused_dropout(x, self._key, self.p, parts=self.parts or (len(x),), before=before)
        keys = [_key_of_pass(self._key, number) for number in range(before + 1, self._passes + 1)]
        masks = [keep_mask(shape, key, self.p, x.device) for shape, key in zip(shapes, keys, strict=True)]
        mask = masks[0] if len(masks) == 1 else torch.cat(masks)
        return x * mask.to(x.dtype).mul_(scale_of_kept(self.p))


def _key_of_pass(key: int | Tensor, number: int) -> int | Tensor:
    return key + signed_word(number * NEXT_PASS) if isinstance(key, Tensor) else (key + number * NEXT_PASS) % 2**64


def keep_mask(shape: torch.Size, key: int | Tensor, rate: float, device: torch.device) -> Tensor:
    """Return which elements stay: those whose scrambled number is not among the lowest `rate` of all words.

    Elements are numbered by their meaning, not by their place in memory. Elements of images are numbered pixel by
    pixel, which is also how they usually lie in memory.
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
        torch.ge(word, keep_threshold(rate), out=block)
    if len(shape) != 4:
        return keep.view(shape)
    samples, channels, height, width = shape
    return keep.view(samples, height, width, channels).permute(0, 3, 1, 2)


def dropouts(model: nn.Module) -> list[Dropout]:
    """Return the layers that drop anything, in a fixed order: each needs a key at every step."""
    return [module for module in model.modules() if isinstance(module, Dropout) and module.p > 0.0]


def begin_step(layers: list[Dropout], rng: np.random.Generator) -> None:
    """Give each layer its own key for this step."""
    for layer, key in zip(layers, rng.integers(2**63, size=len(layers)), strict=True):
        layer.begin_step(int(key))


def replace_dropout(model: nn.Module) -> None:
    """Replace every plain `nn.Dropout` by `Dropout`; one that is used in several places stays one."""
    swapped: dict[nn.Module, Dropout] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if name and type(module) is nn.Dropout:
            model.set_submodule(name, swapped.setdefault(module, Dropout(module.p)))


@contextlib.contextmanager
def seeded(rng: np.random.Generator, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's generator from `rng` while external code runs, and restore it afterwards."""
    where, key = torch.device(device), int(rng.integers(2**63))
    cuda = [torch.cuda.current_device() if where.index is None else where.index] if where.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(key)
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(key)
        yield

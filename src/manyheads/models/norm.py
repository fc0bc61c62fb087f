"""BatchNorm over several batches in one pass, each with its own statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.models.dropout import Dropout
from manyheads.models.kernels.batch_norm import fused_affine, fused_batch_norm


class BatchNorm(nn.BatchNorm2d):
    """BatchNorm, then `+ residual` and ReLU; inside `in_parts`, part by part."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.parts: tuple[int, ...] | None = None

    def forward(self, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
        if self.parts is not None and x.is_cuda:
            own = (self.weight, self.bias, self.running_mean, self.running_var)
            if self.training and self.parts:
                how = {"parts": self.parts, "momentum": self.momentum, "eps": self.eps}
                return fused_batch_norm(x, *own, **how, residual=residual, relu=relu)  # type: ignore[arg-type]
            if not (self.training or torch.is_grad_enabled()) and x.is_contiguous(memory_format=torch.channels_last):
                return fused_affine(x, *own, eps=self.eps, residual=residual, relu=relu)  # type: ignore[arg-type]
        y = self._each(x, self.parts) if self.training and self.parts else super().forward(x)
        if residual is not None:
            y = y + residual
        return F.relu(y, inplace=True) if relu else y

    def _each(self, x: Tensor, parts: tuple[int, ...]) -> Tensor:
        assert self.momentum is not None
        state = (self.running_mean, self.running_var, self.weight, self.bias)
        each = torch.split(x, list(parts))
        return torch.cat([F.batch_norm(part, *state, True, self.momentum, self.eps) for part in each])


@contextlib.contextmanager
def in_parts(model: nn.Module, parts: tuple[int, ...]) -> Iterator[None]:
    """Treat a training batch as these parts, one after the other, without counting batches. (): fused evaluation."""
    layers = [module for module in model.modules() if isinstance(module, BatchNorm | Dropout)]
    before = [layer.parts for layer in layers]
    try:
        for layer in layers:
            layer.parts = parts
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer.parts = was

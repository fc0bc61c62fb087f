"""Pooling that keeps the size of a feature map: on a GPU in one sweep, with the bits of PyTorch's operations.

Those take three sweeps forward for each axis; backward, each slice fills a map of zeros and adds it to the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from manyheads.models.kernels.launch import can_compile
from manyheads.models.kernels.same_pool import fused_pool, suits_the_kernels


class SamePool(nn.Module):
    """The mean of 2 x 2 pixels, pixel by pixel; at the right and lower border, of the pixels that exist.

    Not `avg_pool2d` without counting its padding: on a GPU its gradient is wrong for channels_last (torch 2.11).
    """

    def forward(self, x: Tensor) -> Tensor:
        return fused_pool(x) if x.is_cuda and suits_the_kernels(x) and can_compile() else plain_pool(x)


def plain_pool(x: Tensor) -> Tensor:
    """Pool with PyTorch's own operations: first average with the pixel below, then with the one on the right."""
    x = (x + torch.cat([x[:, :, 1:], x[:, :, -1:]], 2)) / 2.0
    return (x + torch.cat([x[:, :, :, 1:], x[:, :, :, -1:]], 3)) / 2.0

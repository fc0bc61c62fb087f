"""The small networks of FedMD's own experiments."""

from itertools import pairwise

from torch import nn

from manyheads.models.backbone import Backbone, Layers, Stem
from manyheads.models.dropout import Dropout
from manyheads.models.norm import BatchNorm
from manyheads.models.same_pool import SamePool

# FedMD (Li and Wang 2019): the channels of the convolutions and the dropout of its ten models.
FEDMD: dict[str, tuple[tuple[int, ...], float]] = {
    "fedmd0": ((128, 256), 0.2),
    "fedmd1": ((128, 384), 0.2),
    "fedmd2": ((128, 512), 0.2),
    "fedmd3": ((256, 256), 0.3),
    "fedmd4": ((256, 512), 0.4),
    "fedmd5": ((64, 128, 256), 0.2),
    "fedmd6": ((64, 128, 192), 0.2),
    "fedmd7": ((128, 192, 256), 0.2),
    "fedmd8": ((128, 128, 128), 0.3),
    "fedmd9": ((128, 128, 192), 0.3),
}


def fedmd(name: str, channels: int, width: int, stem: Stem) -> Backbone:
    """Return two or three convolutions, each with BatchNorm, ReLU and dropout; `width` and `stem` are ignored."""
    widths, rate = FEDMD[name]
    # (kernel, stride, padding) of the convolutions, and what pools between them.
    shapes, pools = [(3, 1, 1), (3, 2, 0)], list[nn.Module]([SamePool()])
    if len(widths) == 3:
        shapes, pools = [(3, 1, 1), (2, 2, 0), (3, 2, 0)], [SamePool(), nn.AvgPool2d(2)]
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise((channels, *widths))):
        kernel, stride, padding = shapes[number]
        layers += [
            nn.Conv2d(before, after, kernel, stride, padding),
            BatchNorm(after),
            nn.ReLU(inplace=True),
            Dropout(rate),
            *pools[number : number + 1],
        ]
    return Layers(*layers, embedding_width=widths[-1])

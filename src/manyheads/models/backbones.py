"""Backbones: from an image to a feature map, whose mean over positions is the embedding.

Each entry of BACKBONES is a function (channels, width, stem) -> module whose output is B x `embedding_width` x height x
width.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from torch import nn

from manyheads.models.backbone import Backbone, Layers, Stem
from manyheads.models.fedmd import FEDMD, fedmd
from manyheads.models.norm import BatchNorm
from manyheads.models.resnet import BasicBlock, Bottleneck, ResNet


def cnn(channels: int, width: int, stem: Stem) -> Backbone:
    """Return three 3 x 3 convolutions of `width`, 2 `width` and 4 `width` channels: enough for digits."""
    widths = (channels, width, 2 * width, 4 * width)
    layers: list[nn.Module] = []
    for stage, (before, after) in enumerate(pairwise(widths)):
        stride = 2 if stage > 0 or stem == "large" else 1
        layers += [
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            BatchNorm(after),
            nn.ReLU(inplace=True),
        ]
    return Layers(*layers, embedding_width=4 * width)


BACKBONES: dict[str, Callable[[int, int, Stem], Backbone]] = {
    "cnn": cnn,
    "resnet8": partial(ResNet, BasicBlock, (1, 1, 1)),
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet34": partial(ResNet, BasicBlock, (3, 4, 6, 3)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    **{name: partial(fedmd, name) for name in FEDMD},
}


def has_width(backbone: str) -> bool:
    """Tell whether `model.width` has any effect on a backbone."""
    return backbone in BACKBONES and backbone not in FEDMD

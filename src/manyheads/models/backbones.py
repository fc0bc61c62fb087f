"""Backbones: from an image to a feature map, whose mean over positions is the embedding.

Each entry of BACKBONES is a function (channels, width, stem) -> module whose output is B x `embedding_width` x height x
width.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import conv2d

from manyheads.models.dropout import Dropout
from manyheads.models.norm import BatchNorm
from manyheads.models.same_pool import SamePool

Stem = Literal["small", "large"]


class Backbone(nn.Module):
    """A module whose output is B x `embedding_width` x height x width."""

    embedding_width: int


class Layers(nn.Sequential, Backbone):
    """Applied one after the other."""

    def __init__(self, *layers: nn.Module, embedding_width: int) -> None:
        super().__init__(*layers)
        self.embedding_width = embedding_width


def cnn(channels: int, width: int, stem: Stem) -> Backbone:
    """Three 3 x 3 convolutions of width, 2 width and 4 width: enough for digits."""
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


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (He et al. 2016)."""

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNorm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = BatchNorm(channels)
        self.downsample = _shortcut(channels_in, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x), relu=True)
        out: Tensor = self.bn2(self.conv2(y), residual=self.downsample(x), relu=True)
        return out


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions and a shortcut; the 3 x 3 one has the stride, as in most libraries."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = BatchNorm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = BatchNorm(channels)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False)
        self.bn3 = BatchNorm(4 * channels)
        self.downsample = _shortcut(channels_in, 4 * channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x), relu=True)
        y = self.bn2(self.conv2(y), relu=True)
        out: Tensor = self.bn3(self.conv3(y), residual=self.downsample(x), relu=True)
        return out


def _shortcut(channels_in: int, channels: int, stride: int) -> nn.Module:
    if stride == 1 and channels_in == channels:
        return nn.Identity()
    return nn.Sequential(Shortcut(channels_in, channels, stride), BatchNorm(channels))


class Shortcut(nn.Conv2d):
    """A 1 x 1 convolution with a stride.

    Where there are fewer input channels than numbers in a register, oneDNN writes beyond its memory for the gradient of
    the weights (its issue 6035): the process crashes or hangs, or the gradient is wrong. Without a stride it is right.
    """

    REGISTER = 16  # numbers of 32 bits, on a CPU that has the widest

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.in_channels >= self.REGISTER or x.device.type != "cpu":
            return super().forward(x)
        down, across = self.stride
        return conv2d(x[:, :, ::down, ::across], self.weight)


class ResNet(Backbone):
    """One stage per entry of `blocks`; each stage doubles the width and halves the image.

    The names of its parts are those that the world's ResNet files use, so such a file loads by name.
    """

    def __init__(
        self, block: type[BasicBlock | Bottleneck], blocks: tuple[int, ...], channels: int, width: int, stem: Stem
    ) -> None:
        super().__init__()
        # small: 3 x 3, for images of about 32 pixels; large: 7 x 7 with stride and pooling, for about 224.
        size, stride = (3, 1) if stem == "small" else (7, 2)
        self.conv1 = nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
        self.bn1 = BatchNorm(width)
        self.maxpool = nn.Identity() if stem == "small" else nn.MaxPool2d(3, stride=2, padding=1)
        self.stages, before = len(blocks), width
        for stage, count in enumerate(blocks):
            after, made = width * 2**stage, []
            for number in range(count):
                made.append(block(before, after, stride=2 if stage > 0 and number == 0 else 1))
                before = after * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.embedding_width = before

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(x), relu=True))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x


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
    """Two or three convolutions, each with BatchNorm, ReLU and dropout; neither `width` nor `stem` changes them."""
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


BACKBONES: dict[str, Callable[[int, int, Stem], Backbone]] = {
    "cnn": cnn,
    "resnet8": partial(ResNet, BasicBlock, (1, 1, 1)),
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet34": partial(ResNet, BasicBlock, (3, 4, 6, 3)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    **{name: partial(fedmd, name) for name in FEDMD},
}


def has_width(backbone: str) -> bool:
    """Whether `model.width` decides anything about a backbone, so that naming it helps."""
    return backbone in BACKBONES and backbone not in FEDMD

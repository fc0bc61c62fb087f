"""Backbones: from an image to an embedding.

Each entry of BACKBONES is a function (channels, width, stem) -> module whose output is B x `embedding_width`.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

Stem = Literal["small", "large"]


class Backbone(nn.Sequential):
    """Layers that end in a pooled embedding."""

    def __init__(self, *layers: nn.Module, embedding_width: int) -> None:
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.embedding_width = embedding_width


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y)) + self.shortcut(x)
        out: Tensor = self.relu(y)
        return out


def cnn(channels: int, width: int, stem: Stem) -> Backbone:
    """Three 3 x 3 convolutions of width, 2 width and 4 width: enough for digits."""
    widths = (channels, width, 2 * width, 4 * width)
    layers: list[nn.Module] = []
    for stage, (before, after) in enumerate(pairwise(widths)):
        stride = 2 if stage > 0 or stem == "large" else 1
        layers += [
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]
    return Backbone(*layers, embedding_width=4 * width)


def resnet(blocks: tuple[int, ...]) -> Callable[[int, int, Stem], Backbone]:
    """A ResNet with one stage per entry of `blocks`; each stage doubles the width and halves the image."""

    def make(channels: int, width: int, stem: Stem) -> Backbone:
        layers = _stem(channels, width, stem)
        before = width
        for stage, count in enumerate(blocks):
            after = width * 2**stage
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(ResidualBlock(before, after, stride))
                before = after
        return Backbone(*layers, embedding_width=before)

    return make


def _stem(channels: int, width: int, stem: Stem) -> list[nn.Module]:
    """`small`: 3 x 3, for images of about 32 pixels; `large`: 7 x 7 with stride and pooling, for about 224."""
    if stem == "small":
        first: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
    else:
        first = [nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)]
    first += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return first if stem == "small" else [*first, nn.MaxPool2d(3, stride=2, padding=1)]


BACKBONES: dict[str, Callable[[int, int, Stem], Backbone]] = {
    "cnn": cnn,
    "resnet8": resnet((1, 1, 1)),
    "resnet18": resnet((2, 2, 2, 2)),
    "resnet34": resnet((3, 4, 6, 3)),
}

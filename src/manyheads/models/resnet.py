"""ResNets (He et al. 2016)."""

from torch import Tensor, nn
from torch.nn.functional import conv2d

from manyheads.models.backbone import Backbone, Stem
from manyheads.models.norm import BatchNorm


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

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
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, and a shortcut; the 3 x 3 one has the stride, as in most libraries."""

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

    With fewer input channels than numbers in a register, oneDNN writes beyond its memory for the gradient of the
    weights (its issue 6035): the process crashes or hangs, or the gradient is wrong. Without a stride it is right.
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
    """A ResNet with one stage per entry of `blocks`; each stage doubles the width and halves the image.

    Its parts have the names that public ResNet files use, so such a file loads by name.
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

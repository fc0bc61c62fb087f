"""A model of one's own: named in own-model.toml as "my_lab:small_net"."""

from torch import nn


def small_net(channels: int) -> nn.Module:
    """Return two convolutions; any module will do that outputs one vector per image."""
    return nn.Sequential(
        nn.Conv2d(channels, 24, 3, stride=2, padding=1),
        nn.GroupNorm(4, 24),
        nn.GELU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )

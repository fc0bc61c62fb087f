"""Backbones as users write them, good and bad: `model.backbone = "tests.models.lab:..."`."""

import os
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Small(nn.Module):
    """A backbone of one convolution and a pooled embedding."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(images))).mean((2, 3))


def no_arguments() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6))


def of_shape(image_shape: tuple[int, int, int], hidden: int = 5) -> nn.Module:
    height, width, channels = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(height * width * channels, hidden), nn.Tanh())


def dropping(channels: int, width: int) -> nn.Module:
    """A backbone that uses one `nn.Dropout` twice: in the middle and at the end."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
    )


class Functional(Small):
    """A backbone that draws from torch's generator: dropout as a function, and samples that skip a part."""

    def forward(self, images: Tensor) -> Tensor:
        embedding = F.dropout(super().forward(images), 0.3, training=self.training)
        if self.training:
            embedding = embedding * (torch.rand(len(images), 1, device=images.device) > 0.2)
        return embedding


class Untracked(Small):
    """A backbone whose BatchNorm uses the statistics of the batch itself, also in evaluation."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width)
        self.norm = nn.BatchNorm2d(width, track_running_stats=False)


class Frozen(Small):
    """A backbone whose convolution is not trained."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width)
        self.conv.requires_grad_(False)
        self.last = nn.Linear(width, width)

    def forward(self, images: Tensor) -> Tensor:
        embedding: Tensor = self.last(super().forward(images))
        return embedding


class Tied(nn.Module):
    """A backbone of two layers with one weight, an integer buffer that counts, and one that is not saved."""

    calls: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(64, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.two.weight = self.one.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.full((1,), 0.5, dtype=torch.float64), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        embedding: Tensor = self.two(torch.tanh(self.one(self.first(images.flatten(1))))) * self.scale
        return embedding


class Attending(nn.Module):
    """A transformer over the rows of an image of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.layer(images[:, 0])
        return tokens.mean(1)


def attending() -> nn.Module:
    return Attending()


class Viewing(nn.Module):
    """A backbone that needs images and feature maps in memory channel by channel, and writes into its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, stride=2, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        images.view(len(images), -1).mul_(0.5)
        feature_map: Tensor = self.conv(images)
        return feature_map.view(len(images), -1)


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(7))


def half(channels: int) -> nn.Module:
    return Small(channels, 4).half().eval()


def feature_map(channels: int) -> nn.Module:
    return nn.Conv2d(channels, 5, 3, stride=2)


class Reshaped(nn.Module):
    """A wrong backbone: one vector for the whole batch."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten()[None]


class Pair(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images.flatten(1), images


class Classes(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).long()


class NotFinite(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).square().neg().sqrt()


class NotFiniteInTraining(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) / (0.0 if self.training else 1.0)


class AlwaysDropping(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return F.dropout(images.flatten(1), 0.5)


class Reassigning(Small):
    """A wrong backbone that replaces its buffer by a new tensor."""

    mean: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, images: Tensor) -> Tensor:
        embedding = super().forward(images)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * embedding.detach().mean(0)
        return embedding - self.mean


class InPlace(nn.Module):
    """A wrong backbone that overwrites what the backward pass needs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, images: Tensor) -> Tensor:
        said: Tensor = self.layer(images.flatten(1)).exp()
        return said.mul_(2.0) if self.training else said


SHARED = nn.Linear(64, 4)


def shared() -> nn.Module:
    return nn.Sequential(nn.Flatten(), SHARED)


def raising() -> nn.Module:
    raise ValueError("no such depth\nin two lines")


class Stop(BaseException):
    pass


def exiting() -> nn.Module:
    raise SystemExit(0)


def stopping() -> nn.Module:
    raise Stop("now")


class Exiting(nn.Module):
    """A backbone that ends the process in a pass, in one mode or in both."""

    def __init__(self, when: tuple[bool, ...] = (True, False)) -> None:
        super().__init__()
        self.layer, self.when = nn.Linear(64, 4), when

    def forward(self, images: Tensor) -> Tensor:
        if self.training in self.when:
            raise SystemExit(0)
        embedding: Tensor = self.layer(images.flatten(1))
        return embedding


def exiting_in_training() -> nn.Module:
    return Exiting((True,))


class ExitingLater(Exiting):
    """A backbone that ends the process in its fourth pass in training mode, with a run in progress."""

    def __init__(self) -> None:
        super().__init__(())
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training
        self.when = (True,) if self.passes > 3 else ()
        return super().forward(images)


def command(arguments: list[str] | None = None, *, verbose: bool = False) -> int:
    os.abort()


def nothing() -> None:
    pass


def demanding(channels: int, depth: int) -> nn.Module:
    return nn.Conv2d(channels, depth, 3)


def meeting_28_pixels() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 4))


class Leaving:
    """A class that ends the process when it, or an instance, is called."""

    def __init__(self, code: int = 1) -> None:
        if code:
            os.abort()

    def __call__(self) -> nn.Module:
        os.abort()


MODULE, LAYERS = nn.Flatten(), 3
SHAPED = partial(of_shape, hidden=3)
LEAVING, ABORTING = Leaving(0), partial(os.abort)


class FrozenNorm(Small):
    """A backbone whose BatchNorm keeps its statistics, as in fine-tuning."""

    def train(self, mode: bool = True) -> "FrozenNorm":
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class SharedNorm(nn.Module):
    """A backbone whose only BatchNorm has two names."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 4, 3), nn.Conv2d(4, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.again = self.norm

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.again(self.second(self.norm(self.first(images)).relu())).relu()
        return features.mean((2, 3))

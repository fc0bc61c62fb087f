"""The interface of a backbone."""

from typing import Literal

from torch import nn

Stem = Literal["small", "large"]


class Backbone(nn.Module):
    """A module whose output is a feature map, B x `embedding_width` x height x width."""

    embedding_width: int


class Layers(nn.Sequential, Backbone):
    """A backbone of layers that are applied one after the other."""

    def __init__(self, *layers: nn.Module, embedding_width: int) -> None:
        super().__init__(*layers)
        self.embedding_width = embedding_width

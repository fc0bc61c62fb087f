"""What a backbone is."""

from typing import Literal

from torch import nn

Stem = Literal["small", "large"]


class Backbone(nn.Module):
    """A module whose output is B x `embedding_width` x height x width."""

    embedding_width: int


class Layers(nn.Sequential, Backbone):
    """Applied one after the other."""

    def __init__(self, *layers: nn.Module, embedding_width: int) -> None:
        super().__init__(*layers)
        self.embedding_width = embedding_width

"""One head of a client's model as a plain `torch.nn.Module`: images in, logits out."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manyheads.data.views import model_input
from manyheads.errors import ConfigurationError
from manyheads.models.client_model import ClientModel


class Classifier(nn.Module):
    """In evaluation mode; it shares its weights with the model that it was made from."""

    def __init__(
        self, model: ClientModel, head: int, class_names: Sequence[str], image_shape: tuple[int, int, int]
    ) -> None:
        super().__init__()
        self.model = model
        self.head = head
        self.class_names = tuple(class_names)
        self.image_shape = image_shape
        self.eval()

    def forward(self, images: Tensor | NDArray[np.uint8]) -> Tensor:
        """B x height x width x channels (uint8, as stored; torch or NumPy) -> B x classes."""
        like = next(self.model.parameters())
        pixels = torch.as_tensor(images, device=like.device)
        if pixels.dtype != torch.uint8 or tuple(pixels.shape[1:]) != self.image_shape:
            raise ValueError(
                f"images are {pixels.dtype} with shape {tuple(pixels.shape)}; "
                f"needed: uint8 (0 to 255), samples x {' x '.join(map(str, self.image_shape))}"
            )
        logits_BHC: Tensor = self.model(model_input(pixels, like.dtype))[0]
        return logits_BHC[:, self.head]


def choose_head(head: int | None, task: str, heads: int, deploy: Mapping[str, int] | None) -> int:
    """The head that was asked for, or the one chosen on validation data for `task`.

    Without a validation part: the main head for the private task, the last head for the shared one.
    """
    if task not in ("private", "shared"):
        raise ConfigurationError(f'task = "{task}": unknown task; private or shared')
    if head is None:
        return int((deploy or {"private": 0, "shared": heads - 1})[task])
    if not 0 <= head < heads:
        raise ConfigurationError(f"head = {head}: this model has heads 0 to {heads - 1}")
    return head

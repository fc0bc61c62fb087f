"""One head of a client's model as a plain `torch.nn.Module`: images in, logits out."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manyheads.data.views import model_input
from manyheads.models.client_model import ClientModel


class Classifier(nn.Module):
    """One head of a client's model in evaluation mode, with which it shares its weights."""

    log_prior_C: Tensor | None

    def __init__(
        self,
        model: ClientModel,
        head: int,
        class_names: Sequence[str],
        image_shape: tuple[int, int, int],
        log_prior_C: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.head = head
        self.class_names = tuple(class_names)
        self.image_shape = image_shape
        self.register_buffer("log_prior_C", log_prior_C, persistent=False)  # added for the private task
        self.eval()

    def forward(self, images: Tensor | NDArray[np.uint8]) -> Tensor:
        """Return logits (B x classes) for images as stored: B x height x width x channels, uint8, torch or NumPy."""
        like = next(self.model.parameters())
        pixels = torch.as_tensor(images, device=like.device)
        if pixels.dtype != torch.uint8 or tuple(pixels.shape[1:]) != self.image_shape:
            raise ValueError(
                f"images are {pixels.dtype} with shape {tuple(pixels.shape)}; "
                f"needed: uint8 (0 to 255), samples x {' x '.join(map(str, self.image_shape))}"
            )
        logits_BHC: Tensor = self.model(model_input(pixels, like.dtype))[0]
        logits_BC = logits_BHC[:, self.head]
        return logits_BC if self.log_prior_C is None else logits_BC + self.log_prior_C

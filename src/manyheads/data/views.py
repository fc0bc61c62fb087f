"""Views: what a crop and a flip make of a sample. A view is a pure function of (sample, view number)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PADDING = 4  # pixels by which a crop may be shifted; the border is reflected


def draw_views(augment: str, rng: np.random.Generator, samples: int) -> NDArray[np.int64] | None:
    """For each sample (vertical shift, horizontal shift, flipped or not), or None where nothing is changed."""
    if augment == "none":
        return None
    shift = rng.integers(-PADDING, PADDING + 1, size=(samples, 2))
    flip = rng.integers(0, 2, size=(samples, 1))
    return np.concatenate([shift, flip], axis=1)


def apply_views(images_BHWC: Tensor, views_B3: Tensor) -> Tensor:
    """Shift, reflecting at the border, and flip each image, in one gather."""
    height, width = images_BHWC.shape[1:3]
    device = images_BHWC.device
    vertical, horizontal, flip = views_B3.unbind(1)
    rows = _reflect(torch.arange(height, device=device) + vertical[:, None], height)
    column = torch.arange(width, device=device)
    column = torch.where(flip[:, None] == 1, width - 1 - column, column)
    columns = _reflect(column + horizontal[:, None], width)
    sample = torch.arange(len(images_BHWC), device=device)[:, None, None]
    return images_BHWC[sample, rows[:, :, None], columns[:, None, :]]


def model_input(images_BHWC: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels of 0 to 255 as numbers around zero, B x channels x height x width in channels_last order.

    The constants are fixed: statistics of the data would tell one client about another's.
    """
    return images_BHWC.permute(0, 3, 1, 2).to(dtype).sub(127.5).mul_(1.0 / 63.75)


def _reflect(position: Tensor, size: int) -> Tensor:
    """Mirror positions outside 0 ... size - 1 at the border, without repeating it."""
    period = max(1, 2 * (size - 1))
    position = position.remainder(period)
    return torch.minimum(position, period - position) if size > 1 else torch.zeros_like(position)

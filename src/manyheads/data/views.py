"""Views: what cropping and flipping make of a sample. A view is a pure function of (sample, view number).

All of it is integer arithmetic on whole batches, so the pixels are the same bits on every device.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PADDING = 4  # pixels by which a crop may be shifted; the border is reflected
AREA = (0.08, 1.0)  # of a random resized crop, as a share of the image (Szegedy et al. 2015)
ASPECT = (3.0 / 4.0, 4.0 / 3.0)
FRACTION = 10  # bits that say where between two pixels a position lies


def draw_views(
    augment: str, rng: np.random.Generator, samples: int, image_size: tuple[int, int]
) -> NDArray[np.int16] | None:
    """For each sample what is done to it, as small integers; None where nothing is changed.

    crop-flip: vertical shift, horizontal shift, flipped or not. resized-crop-flip: top, left, height, width, flipped.
    """
    if augment == "none":
        return None
    if augment == "crop-flip":
        drawn = rng.integers(-PADDING, PADDING + 1, size=(samples, 2))
    else:
        drawn = _draw_boxes(rng, samples, *image_size)
    flip = rng.integers(0, 2, size=(samples, 1))
    return np.concatenate([drawn, flip], axis=1).astype(np.int16)


def apply_views(images_BHWC: Tensor, views_BV: Tensor) -> Tensor:
    """Each image in its view; uint8 in, uint8 out."""
    views_BV = views_BV.long()
    if views_BV.shape[1] == 3:
        return _shifted(images_BHWC, *views_BV.unbind(1))
    return _resized(images_BHWC, *views_BV.unbind(1))


def model_input(images_BHWC: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels of 0 to 255 as numbers around zero, B x channels x height x width in channels_last order.

    The constants are fixed: statistics of the data would tell one client about another's.
    """
    return images_BHWC.permute(0, 3, 1, 2).to(dtype).sub(127.5).mul_(1.0 / 63.75)


def _draw_boxes(rng: np.random.Generator, samples: int, height: int, width: int) -> NDArray[np.int64]:
    """Top, left, height and width of a part of the image: its area and aspect ratio are drawn, then its place."""
    area = rng.uniform(*AREA, size=samples) * (height * width)
    aspect = np.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1]), size=samples))
    # Where the drawn shape does not fit, its longer side gives way.
    box_height = np.clip(np.rint(np.sqrt(area / aspect)), 1, height).astype(np.int64)
    box_width = np.clip(np.rint(np.sqrt(area * aspect)), 1, width).astype(np.int64)
    top = rng.integers(0, height - box_height + 1)
    left = rng.integers(0, width - box_width + 1)
    return np.stack([top, left, box_height, box_width], axis=1)


def _shifted(images_BHWC: Tensor, vertical: Tensor, horizontal: Tensor, flip: Tensor) -> Tensor:
    """Shift, reflecting at the border, and flip each image, in one gather."""
    height, width = images_BHWC.shape[1:3]
    rows_BH = _reflect(torch.arange(height, device=flip.device) + vertical[:, None], height)
    columns_BW = _reflect(_columns(flip, width) + horizontal[:, None], width)
    return _gather(images_BHWC, rows_BH, columns_BW)


def _resized(images_BHWC: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, flip: Tensor) -> Tensor:
    """A part of each image at the size of the whole: bilinear, in fixed-point numbers."""
    rows, columns = images_BHWC.shape[1:3]
    y0_BH, y1_BH, y_BH = _between(torch.arange(rows, device=flip.device)[None], top, height, rows)
    x0_BW, x1_BW, x_BW = _between(_columns(flip, columns), left, width, columns)
    x_BHWC, y_BHWC = x_BW[:, None, :, None], y_BH[:, :, None, None]
    upper, lower = (
        _gather(images_BHWC, at, x0_BW).int() * (2**FRACTION - x_BHWC) + _gather(images_BHWC, at, x1_BW).int() * x_BHWC
        for at in (y0_BH, y1_BH)
    )
    blended = upper * (2**FRACTION - y_BHWC) + lower * y_BHWC
    rounded: Tensor = (blended + 2 ** (2 * FRACTION - 1)) >> (2 * FRACTION)
    return rounded.to(torch.uint8)


def _between(at: Tensor, start: Tensor, length: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each output pixel the two source pixels that it lies between, and how far it is from the first."""
    start, length = start[:, None], length[:, None]
    position = ((2 * at + 1) * length - size) * 2**FRACTION // (2 * size)  # pixel centres, relative to the part
    position = torch.minimum(position.clamp_min(0), (length - 1) * 2**FRACTION) + start * 2**FRACTION
    first = position >> FRACTION
    second = torch.minimum(first + 1, start + length - 1)
    return first, second, (position & (2**FRACTION - 1)).int()


def _columns(flip: Tensor, width: int) -> Tensor:
    """B x W: which column each output column shows."""
    column = torch.arange(width, device=flip.device)
    return torch.where(flip[:, None] == 1, width - 1 - column, column)


def _gather(images_BHWC: Tensor, rows_BH: Tensor, columns_BW: Tensor) -> Tensor:
    sample = torch.arange(len(images_BHWC), device=images_BHWC.device)[:, None, None]
    return images_BHWC[sample, rows_BH[:, :, None], columns_BW[:, None, :]]


def _reflect(position: Tensor, size: int) -> Tensor:
    """Mirror positions outside 0 ... size - 1 at the border, without repeating it."""
    period = max(1, 2 * (size - 1))
    position = position.remainder(period)
    return torch.minimum(position, period - position) if size > 1 else torch.zeros_like(position)

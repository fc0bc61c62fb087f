"""Views: a sample after cropping and flipping, a pure function of (sample, view number).

All of it is integer arithmetic on whole batches, so the pixels are the same bits on every device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PADDING = 4  # a crop may be shifted by so many pixels; the border is reflected
AREA = (0.08, 1.0)  # of a random resized crop, as a share of the image (Szegedy et al. 2015)
ASPECT = (3.0 / 4.0, 4.0 / 3.0)
FRACTION = 10  # bits of a position between two pixels


def draw_views(
    augment: str, rng: np.random.Generator, samples: int, image_size: tuple[int, int]
) -> NDArray[np.int16] | None:
    """Draw a view of each sample, as small integers; None if nothing is changed.

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


@dataclass(frozen=True)
class Grid:
    """The stored pixels that the pixels of a view show, made for a whole window at once, so that a step only gathers.

    Shapes begin with those of the samples: S x B for a window, B for a batch.
    """

    rows: Tensor  # ... x H x 1; for a part that is resized ... x 2 x H x 1 x 1: the two rows around a position
    columns: Tensor  # ... x 1 x W; or ... x 1 x 1 x 2 x W
    down: Tensor | None = None  # the weight of each of the two rows: ... x 2 x H x 1 x 1
    across: Tensor | None = None  # ... x 1 x 1 x 2 x W x 1

    def map(self, change: Callable[[Tensor], Tensor]) -> "Grid":
        """Apply a function to each tensor."""
        if self.down is None or self.across is None:
            return Grid(change(self.rows), change(self.columns))
        return Grid(change(self.rows), change(self.columns), change(self.down), change(self.across))


def grid_of(views: Tensor, height: int, width: int) -> Grid:
    """Return the grid of views that were drawn (... x V)."""
    drawn = [part[..., None] for part in views.long().unbind(-1)]
    flip = drawn[-1]
    row = torch.arange(height, device=views.device)
    column = torch.arange(width, device=views.device)
    column = torch.where(flip == 1, width - 1 - column, column)
    if len(drawn) == 3:
        vertical, horizontal, _ = drawn
        return Grid(_reflect(row + vertical, height)[..., None], _reflect(column + horizontal, width)[..., None, :])
    top, left, box_height, box_width, _ = drawn
    rows, down = _between(row, top, box_height, height)
    columns, across = _between(column, left, box_width, width)
    return Grid(
        rows[..., None, None],
        columns[..., None, None, :, :],
        down[..., None, None],
        across[..., None, None, :, :, None],
    )


def gather_views(stored_NHWC: Tensor, samples_B: Tensor, grid: Grid) -> Tensor:
    """Return stored images, each in its view; uint8, B x H x W x C."""
    if grid.down is None or grid.across is None:
        return stored_NHWC[samples_B[:, None, None], grid.rows, grid.columns]
    near = stored_NHWC[samples_B[:, None, None, None, None], grid.rows, grid.columns]  # B x 2 x H x 2 x W x C
    lines = (near.int() * grid.across).sum(3, dtype=torch.int32)
    blended = (lines * grid.down).sum(1, dtype=torch.int32)
    return blended.add_(2 ** (2 * FRACTION - 1)).bitwise_right_shift_(2 * FRACTION).to(torch.uint8)


def model_input(images_BHWC: Tensor, dtype: torch.dtype) -> Tensor:
    """Return pixels of 0 to 255 as numbers around zero, B x channels x height x width in channels_last order.

    The constants are fixed: statistics of the data would tell one client about another's.
    """
    return images_BHWC.permute(0, 3, 1, 2).to(dtype).sub(127.5).mul_(1.0 / 63.75)


def _draw_boxes(rng: np.random.Generator, samples: int, height: int, width: int) -> NDArray[np.int64]:
    """Draw top, left, height and width of a part of the image: first its area and aspect ratio, then its place."""
    area = rng.uniform(*AREA, size=samples) * (height * width)
    aspect = np.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1]), size=samples))
    # Where the drawn shape does not fit, its longer side gives way.
    box_height = np.clip(np.rint(np.sqrt(area / aspect)), 1, height).astype(np.int64)
    box_width = np.clip(np.rint(np.sqrt(area * aspect)), 1, width).astype(np.int64)
    top = rng.integers(0, height - box_height + 1)
    left = rng.integers(0, width - box_width + 1)
    return np.stack([top, left, box_height, box_width], axis=1)


def _between(at: Tensor, start: Tensor, length: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return for each output pixel the two source pixels beside it, and the weight of each (... x 2 x size)."""
    position = ((2 * at + 1) * length - size) * 2**FRACTION // (2 * size)  # pixel centres, relative to the part
    position = torch.minimum(position.clamp_min(0), (length - 1) * 2**FRACTION) + start * 2**FRACTION
    first, second_counts = position >> FRACTION, (position & (2**FRACTION - 1)).int()
    second = torch.minimum(first + 1, start + length - 1)
    return torch.stack([first, second], -2), torch.stack([2**FRACTION - second_counts, second_counts], -2)


def _reflect(position: Tensor, size: int) -> Tensor:
    """Mirror positions outside 0 ... size - 1 at the border, without repeating it."""
    period = max(1, 2 * (size - 1))
    position = position.remainder(period)
    return torch.minimum(position, period - position) if size > 1 else torch.zeros_like(position)

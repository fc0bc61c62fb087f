"""Batches: which samples a client sees at which step, in which view, computed a window at a time as arrays.

A stream is an endless sequence of samples: epoch after epoch, each a fresh permutation. The batch of
step t is at positions t * batch_size ... (t + 1) * batch_size, so any window can be drawn without the ones before.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.arrays import Images, Indices
from manyheads.data.views import Grid, draw_views, gather_views, grid_of, model_input
from manyheads.seeds import generator

DEVICE_SHARE = 0.5  # images may take this share of a GPU's free memory; larger sets are read batch by batch


@dataclass(frozen=True)
class Rows:
    """A batch of (sample, view) rows with their pixels, ready for a model."""

    samples: Tensor
    view_numbers: Tensor  # with `samples`, the name by which two clients mean the same pixels
    images: Tensor


@dataclass(frozen=True)
class WindowRows:
    """The rows of every step of a window: S x B samples, view numbers and, if views change pixels, their grid."""

    samples_SB: Tensor
    view_numbers_SB: Tensor
    grid: Grid | None

    def map(self, change: Callable[[Tensor], Tensor]) -> "WindowRows":
        """Apply a function to each tensor, such as one that selects some steps."""
        grid = None if self.grid is None else self.grid.map(change)
        return WindowRows(change(self.samples_SB), change(self.view_numbers_SB), grid)


class Pixels:
    """Stored images: on the device that trains if they fit there, otherwise where they are."""

    def __init__(self, images: Images, device: torch.device) -> None:
        self.device = device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a mapped array must not be written to, which nobody does
            self._stored = torch.from_numpy(images)
        if device.type == "cuda" and images.nbytes <= DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            self._stored = self._stored.to(device)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def on_device(self) -> bool:
        """True if a batch can be gathered without the host."""
        return self._stored.device.type == self.device.type

    def fetch(self, samples: Tensor) -> Tensor:
        """Return the images of samples on the host, in memory that a GPU can read by itself."""
        images = self._stored.index_select(0, samples.flatten()).view(*samples.shape, *self._stored.shape[1:])
        return images.pin_memory() if self.device.type == "cuda" else images

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self._stored.shape[1], self._stored.shape[2]

    def __getitem__(self, samples: Tensor) -> Tensor:
        """Return the images of samples, on the device."""
        return self._stored[samples.to(self._stored.device)].to(self.device)

    def in_views(self, samples: Tensor, grid: Grid | None) -> Tensor:
        """Return the images of samples, each in its view."""
        if grid is None:
            return self[samples]
        if self._stored.device == self.device:
            return gather_views(self._stored, samples, grid)
        return gather_views(self[samples], torch.arange(len(samples), device=self.device), grid)


def stream(size: int, first: int, last: int) -> Iterator[tuple[int, slice]]:
    """Yield the epochs, and the slice of each, that positions first ... last - 1 of an endless stream fall into.

    >>> list(stream(size=10, first=8, last=13))
    [(0, slice(8, 13, None)), (1, slice(0, 3, None))]
    """
    for epoch in range(first // size, (last - 1) // size + 1):
        yield epoch, slice(max(0, first - epoch * size), last - epoch * size)


class Samples:
    """A fixed set of samples (indices into shared arrays) and the stream through them."""

    def __init__(
        self,
        pixels: Pixels,
        labels: Tensor | None,
        indices: Indices,
        *,
        seed: int,
        purpose: str,
        client: int,
        augment: str,
        views_of: int,
        views: int | None = None,
        first_occurrence: Indices | None = None,
    ) -> None:
        self.pixels, self._labels = pixels, labels  # of the whole set; only `indices` are read
        self.indices = indices
        self._seed, self._purpose, self._client = seed, purpose, client
        self._views_of = views_of  # whose views: the client's own, or EVERYONE's if all must see the same pixels
        self._augment = augment
        self.views = views  # the number of different views; None: a new one each epoch
        self._first_occurrence = first_occurrence  # by sample: equal pixels are shown in equal views
        self._epoch_cache: dict[int, tuple[Indices, NDArray[np.int16] | None]] = {}
        self._view_cache: dict[int, NDArray[np.int16] | None] = {}

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labelled(self) -> bool:
        return self._labels is not None

    def labels(self, samples: Tensor) -> Tensor:
        """Return the labels of samples as `Rows` names them."""
        assert self._labels is not None, "an unlabelled set"
        return self._labels[samples]

    @cached_property
    def _ordered(self) -> Tensor:
        return self._tensor(np.sort(self.indices))

    @property
    def first(self) -> Tensor:
        """The first sample alone."""
        return self._ordered[:1]

    def places(self, samples: Tensor) -> Tensor:
        """Return the place of each sample in an array with one entry for each sample of the set."""
        return torch.searchsorted(self._ordered, samples)

    def drawn(
        self, start: int, stop: int, batch_size: int
    ) -> tuple[Indices, NDArray[np.int64], NDArray[np.int16] | None]:
        """Return the samples, view numbers and views of steps start ... stop - 1 (each S x B)."""
        first, last = start * batch_size, stop * batch_size  # positions in the stream
        chosen, views, numbers = [], [], []
        for number, part in stream(len(self), first, last):
            order, drawn = self._epoch(number)
            here = order[part]
            chosen.append(here)
            numbers.append(np.full(len(here), self._view_of(number)))
            if drawn is not None:
                views.append(drawn[here])
        self._epoch_cache = {number: self._epoch_cache[number]}
        shape = (stop - start, batch_size)
        return (
            self.indices[np.concatenate(chosen)].reshape(shape),
            np.concatenate(numbers).reshape(shape),
            np.concatenate(views).reshape(*shape, -1) if views else None,
        )

    def window(self, start: int, stop: int, batch_size: int) -> WindowRows:
        """Return the rows of steps start ... stop - 1."""
        samples, numbers, views = self.drawn(start, stop, batch_size)
        grid = None if views is None else self._grid(views)
        return WindowRows(self._tensor(samples), self._tensor(numbers), grid)

    def rows(self, window: WindowRows, step: int, dtype: torch.dtype) -> Rows:
        """Return the rows of the window's step number `step`, counted from its start, with their pixels."""
        return self.read_rows(window.map(lambda of: of[step]), dtype)

    def read_rows(self, rows: WindowRows, dtype: torch.dtype) -> Rows:
        """Return rows with their pixels; they form one axis, whatever steps they are from."""
        images = self.pixels.in_views(rows.samples_SB, rows.grid)
        return Rows(rows.samples_SB, rows.view_numbers_SB, model_input(images, dtype))

    def rows_from(self, images: Tensor, rows: WindowRows, dtype: torch.dtype) -> Rows:
        """Return rows with pixels, like `read_rows`, from images that were fetched for them."""
        if rows.grid is not None:
            images = gather_views(images, torch.arange(len(images), device=images.device), rows.grid)
        return Rows(rows.samples_SB, rows.view_numbers_SB, model_input(images, dtype))

    def window_of(self, positions_SB: Indices, views_S: NDArray[np.int64]) -> WindowRows:
        """Return the rows of a window of chosen samples (positions in `indices`), each step in one view."""
        drawn = [self._draw(int(view)) for view in views_S]
        views = [own[at] for own, at in zip(drawn, positions_SB, strict=True) if own is not None]
        numbers = np.broadcast_to(views_S[:, None], positions_SB.shape).copy()
        grid = self._grid(np.stack(views)) if views else None
        return WindowRows(self._tensor(self.indices[positions_SB]), self._tensor(numbers), grid)

    def rows_in_view(self, positions: Indices, view: int, dtype: torch.dtype) -> Rows:
        """Return chosen samples (positions in `indices`) in one view, with their pixels."""
        drawn, samples = self._draw(view), self._tensor(self.indices[positions])
        images = self.pixels.in_views(samples, None if drawn is None else self._grid(drawn[positions]))
        return Rows(samples, torch.full_like(samples, view), model_input(images, dtype))

    def _grid(self, drawn: NDArray[np.int16]) -> Grid:
        return grid_of(self._tensor(drawn), *self.pixels.size)

    def _epoch(self, number: int) -> tuple[Indices, NDArray[np.int16] | None]:
        """Return the order of an epoch, and its view of every sample: each epoch shows the next view."""
        if number not in self._epoch_cache:
            order = generator(self._seed, f"{self._purpose} order", self._client, number)
            self._epoch_cache[number] = (order.permutation(len(self)), self._draw(self._view_of(number)))
        return self._epoch_cache[number]

    def _view_of(self, epoch: int) -> int:
        return epoch if self.views is None else epoch % self.views

    def _draw(self, view: int) -> NDArray[np.int16] | None:
        if view not in self._view_cache:
            rng = generator(self._seed, f"{self._purpose} views", self._views_of, view)
            drawn = draw_views(self._augment, rng, len(self), self.pixels.size)
            self._view_cache = {
                view: drawn if drawn is None or self._first_occurrence is None else drawn[self._first_occurrence]
            }
        return self._view_cache[view]

    def _tensor(self, array: NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(array).to(self.pixels.device)

"""Batches: which samples a client sees at which step."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.data.batches import Pixels, Samples
from manyheads.seeds import EVERYONE

IMAGES = Pixels(np.repeat(np.arange(50, dtype=np.uint8), 36).reshape(50, 6, 6, 1), torch.device("cpu"))


def samples(size: int, client: int = 0, augment: str = "none", views_of: int | None = None) -> Samples:
    return Samples(
        IMAGES,
        None,
        np.arange(size) + 3,
        seed=0,
        purpose="private",
        client=client,
        augment=augment,
        views_of=client if views_of is None else views_of,
    )


@given(
    size=st.integers(1, 30),
    batch=st.integers(1, 40),
    start=st.integers(0, 20),
    steps=st.integers(1, 8),
    cut=st.integers(1, 7),
)
def test_any_window_can_be_drawn_without_the_ones_before(
    size: int, batch: int, start: int, steps: int, cut: int
) -> None:
    whole = samples(size).window(0, start + steps, batch).samples_SB[start:]
    assert torch.equal(whole, samples(size).window(start, start + steps, batch).samples_SB)
    if cut < steps:
        same = samples(size)
        parts = [same.window(start, start + cut, batch), same.window(start + cut, start + steps, batch)]
        assert torch.equal(whole, torch.cat([part.samples_SB for part in parts]))


@given(size=st.integers(1, 30))
def test_each_epoch_shows_every_sample_once_in_a_new_order(size: int) -> None:
    window = samples(size).window(0, 4 * size, 1)
    epochs = window.samples_SB.reshape(4, size)
    assert all(sorted(epoch.tolist()) == list(range(3, size + 3)) for epoch in epochs)
    assert window.view_numbers_SB.reshape(4, size).tolist() == [[number] * size for number in range(4)]
    if size > 10:
        assert len({tuple(epoch.tolist()) for epoch in epochs}) == 4


def test_clients_draw_differently() -> None:
    assert not torch.equal(samples(30, 0).window(0, 3, 10).samples_SB, samples(30, 1).window(0, 3, 10).samples_SB)


def test_pixels_are_those_of_the_samples() -> None:
    mine = samples(20)
    window = mine.window(5, 6, 8)
    rows = mine.rows(window, 0, torch.float32)
    assert rows.images.shape == (8, 1, 6, 6)
    assert (rows.images * 63.75 + 127.5).round()[:, 0, 0, 0].tolist() == rows.samples.tolist()


def test_a_shared_view_is_the_same_pixels_for_every_client() -> None:
    """A view is a function of (sample, view number): clients that draw it at other steps see the same."""
    seen: list[dict[tuple[int, int], list[int]]] = []
    for client in (0, 1):
        window = samples(20, client, "crop-flip", views_of=EVERYONE).window(0, 4, 10)
        assert window.grid is not None
        keys = zip(window.samples_SB.flatten().tolist(), window.view_numbers_SB.flatten().tolist(), strict=True)
        shown = torch.cat([window.grid.rows.flatten(2), window.grid.columns.flatten(2)], -1).flatten(0, 1)
        seen.append(dict(zip(keys, shown.tolist(), strict=True)))
    assert seen[0] == seen[1]
    own = [samples(20, client, "crop-flip").window(0, 2, 10).grid for client in (0, 1)]
    assert own[0] is not None
    assert own[1] is not None
    assert not torch.equal(own[0].rows, own[1].rows)

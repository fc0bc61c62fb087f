"""Crops and flips, compared with NumPy's own padding, one image at a time."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.data.views import PADDING, draw_views, model_input
from tests.data.made import apply_views


@settings(max_examples=40)
@given(seed=st.integers(0, 1_000), height=st.integers(PADDING + 1, 12), width=st.integers(PADDING + 1, 12))
def test_views_equal_a_loop_over_padded_images(seed: int, height: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, size=(6, height, width, 3), dtype=np.uint8)
    views = draw_views("crop-flip", rng, 6, (height, width))
    assert views is not None
    ours = apply_views(torch.from_numpy(images), torch.from_numpy(views)).numpy()
    for image, (vertical, horizontal, flip), made in zip(images, views, ours, strict=True):
        padded = np.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), mode="reflect")
        top, left = PADDING + vertical, PADDING + horizontal
        expected = padded[top : top + height, left : left + width]
        assert np.array_equal(made, expected[:, ::-1] if flip else expected)


def test_every_shift_and_flip_occurs() -> None:
    views = draw_views("crop-flip", np.random.default_rng(0), 5_000, (8, 8))
    assert views is not None
    assert sorted(set(views[:, 0].tolist())) == list(range(-PADDING, PADDING + 1))
    assert sorted(set(views[:, 2].tolist())) == [0, 1]
    assert draw_views("none", np.random.default_rng(0), 5, (8, 8)) is None


def test_one_pixel_survives_any_view() -> None:
    image = torch.full((1, 1, 1, 1), 7, dtype=torch.uint8)
    assert apply_views(image, torch.tensor([[3, -4, 1]])).tolist() == image.tolist()


def test_model_input_is_centred_and_channels_last() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 4, 4, 3)
    made = model_input(images, torch.float64)
    assert made[:, 0, 0, 0].tolist() == [-2.0, 2.0]
    assert made.shape == (2, 3, 4, 4)
    assert model_input(images.contiguous(), torch.float32).is_contiguous(memory_format=torch.channels_last)


def test_floats_are_not_written_over() -> None:
    images = torch.full((1, 2, 2, 1), 255.0)
    assert model_input(images, torch.float32).flatten().tolist() == [2.0] * 4
    assert images.flatten().tolist() == [255.0] * 4

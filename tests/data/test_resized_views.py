"""Random resized crops, compared with a loop in float64, and the places of their boxes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from manyheads.data.arrays import Images
from manyheads.data.batches import Pixels, Samples
from manyheads.data.views import AREA, ASPECT, draw_views
from manyheads.seeds import EVERYONE
from tests.data.made import apply_views

SIDES = st.integers(1, 24)


def noise(seed: int, *shape: int) -> Images:
    return np.random.default_rng(seed).integers(0, 256, size=shape, dtype=np.uint8)


def drawn(seed: int, samples: int, height: int, width: int) -> NDArray[np.int16]:
    views = draw_views("resized-crop-flip", np.random.default_rng(seed), samples, (height, width))
    assert views is not None
    assert views.shape == (samples, 5)
    return views


def applied(images: Images, views: NDArray[np.int16] | list[list[int]], device: str = "cpu") -> Images:
    given_views = torch.as_tensor(np.asarray(views, dtype=np.int16), device=device)
    made: Images = apply_views(torch.from_numpy(images).to(device), given_views).cpu().numpy()
    assert made.dtype == np.uint8
    return made


def by_brute_force(image: Images, top: int, left: int, height: int, width: int) -> NDArray[np.float64]:
    """Resize with a loop, by each pixel's centre as a position in the box; beyond the outermost centres is border."""
    part = image[top : top + height, left : left + width].astype(np.float64)
    rows, columns, _ = image.shape
    out = np.empty(image.shape)
    for y in range(rows):
        for x in range(columns):
            at_y = min(max((y + 0.5) * height / rows - 0.5, 0.0), height - 1.0)
            at_x = min(max((x + 0.5) * width / columns - 0.5, 0.0), width - 1.0)
            y0, x0 = int(at_y), int(at_x)
            y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
            upper = part[y0, x0] * (1 - (at_x - x0)) + part[y0, x1] * (at_x - x0)
            lower = part[y1, x0] * (1 - (at_x - x0)) + part[y1, x1] * (at_x - x0)
            out[y, x] = upper * (1 - (at_y - y0)) + lower * (at_y - y0)
    return out


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), height=SIDES, width=SIDES, channels=st.sampled_from([1, 3]))
def test_integers_are_as_good_as_float64(seed: int, height: int, width: int, channels: int) -> None:
    images, views = noise(seed, 3, height, width, channels), drawn(seed, 3, height, width)
    for image, (top, left, box_height, box_width, flip), made in zip(
        images, views, applied(images, views), strict=True
    ):
        exact = by_brute_force(image, top, left, box_height, box_width)
        exact = exact[:, ::-1] if flip else exact
        assert np.abs(made - exact).max() <= 1.0


@given(seed=st.integers(0, 1_000), height=SIDES, width=SIDES)
def test_the_whole_image_is_itself(seed: int, height: int, width: int) -> None:
    images = noise(seed, 2, height, width, 3)
    assert np.array_equal(applied(images, [[0, 0, height, width, 0]] * 2), images)
    assert np.array_equal(applied(images, [[0, 0, height, width, 1]] * 2), images[:, :, ::-1])


@given(seed=st.integers(0, 1_000), height=SIDES, width=SIDES)
def test_a_flip_is_exact(seed: int, height: int, width: int) -> None:
    images, views = noise(seed, 4, height, width, 3), drawn(seed, 4, height, width)
    flipped = views.copy()
    flipped[:, 4] = 1 - views[:, 4]
    assert np.array_equal(applied(images, flipped), applied(images, views)[:, :, ::-1])


def test_one_pixel_of_an_image_fills_it() -> None:
    image = noise(0, 1, 5, 7, 3)
    assert (applied(image, [[2, 6, 1, 1, 0]]) == image[0, 2, 6]).all()


def test_nothing_outside_the_box_is_seen() -> None:
    """The bilinear neighbours of its border are inside the box, too."""
    image = np.full((1, 12, 12, 1), 255, dtype=np.uint8)
    image[0, 3:8, 4:9] = 7
    assert (applied(image, [[3, 4, 5, 5, 0]]) == 7).all()


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), height=st.integers(1, 300), longer=st.floats(1.0, 4.0), upright=st.booleans())
def test_boxes_are_of_the_area_and_shape_that_they_should_be(
    seed: int, height: int, longer: float, upright: bool
) -> None:
    """Sides are rounded to whole pixels, and one that does not fit gives way."""
    width = round(height * longer)
    rows, columns = (width, height) if upright else (height, width)
    top, left, box_height, box_width, _ = drawn(seed, 200, rows, columns).T.astype(np.int64)
    assert min(top.min(), left.min()) >= 0
    assert min(box_height.min(), box_width.min()) >= 1
    assert (top + box_height <= rows).all()
    assert (left + box_width <= columns).all()
    assert ((box_height + 0.5) * (box_width + 0.5) >= AREA[0] * rows * columns).all()
    fits = (box_height < rows) & (box_width < columns) & (box_height > 1) & (box_width > 1)
    assert ((box_width + 0.5) / (box_height - 0.5) >= ASPECT[0])[fits].all()
    assert ((box_width - 0.5) / (box_height + 0.5) <= ASPECT[1])[fits].all()


def test_every_possible_box_is_drawn() -> None:
    top, left, box_height, box_width, flip = drawn(0, 5_000, 224, 224).T.astype(np.int64)
    area, shape = box_height * box_width / 224**2, np.log(box_width / box_height)
    assert 0.079 < area.min() < 0.09
    assert 0.97 < area.max() <= 1.0
    assert abs(area.mean() - 0.54) < 0.03  # a little less than the middle: what does not fit gives way
    assert shape.min() == pytest.approx(np.log(3 / 4), abs=0.02)
    assert shape.max() == pytest.approx(np.log(4 / 3), abs=0.02)
    assert abs(shape.mean()) < 0.02
    for start, length in ((top, box_height), (left, box_width)):
        free = 224 - length
        place = start[free > 50] / free[free > 50]
        assert place.min() < 0.01
        assert place.max() > 0.99
        assert abs(place.mean() - 0.5) < 0.02
    assert abs(flip.mean() - 0.5) < 0.03


def samples(images: Images, client: int = 0, views: int | None = None) -> Samples:
    return Samples(
        Pixels(images, torch.device("cpu")),
        None,
        np.arange(3, 17),
        seed=5,
        purpose="public",
        client=client,
        augment="resized-crop-flip",
        views_of=EVERYONE,
        views=views,
    )


@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 11, 3), (1, 1, 3)])
@pytest.mark.parametrize("views", [None, 2])
def test_a_view_depends_on_the_sample_and_its_number_only(shape: tuple[int, ...], views: int | None) -> None:
    """A view has the same pixels in any client's window as when it is named."""
    images = noise(1, 20, *shape)
    seen: dict[tuple[int, int], bytes] = {}
    for client, start, stop in ((0, 0, 9), (1, 4, 12)):
        mine = samples(images, client, views)
        window = mine.window(start, stop, 5)
        for step in range(stop - start):
            rows = mine.rows(window, step, torch.float32)
            for sample, view, image in zip(rows.samples.tolist(), rows.view_numbers.tolist(), rows.images, strict=True):
                pixels = image.numpy().tobytes()
                assert seen.setdefault((sample, view), pixels) == pixels
    asked = samples(images, client=7, views=views)
    for sample, view in seen:
        row = asked.rows_in_view(np.array([sample - 3]), view, torch.float32)
        assert (row.samples.tolist(), row.view_numbers.tolist()) == ([sample], [view])
        assert row.images[0].numpy().tobytes() == seen[sample, view]
    assert len({view for _, view in seen}) == (views or 5)
    if shape != (1, 1, 3):
        assert len(set(seen.values())) > 0.9 * len(seen), "views differ"


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8, 8, 1), (32, 32, 3), (37, 61, 3), (1, 1, 1)])
def test_a_gpu_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    images, views = noise(2, 200, *shape), drawn(2, 200, *shape[:2])
    assert np.array_equal(applied(images, views, "cuda"), applied(images, views))

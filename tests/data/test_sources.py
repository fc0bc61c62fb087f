"""Sources, beyond their contract: errors about wrong files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyheads import ConfigurationError, DataError
from manyheads.config.data import DataConfig
from manyheads.data.loading import load
from manyheads.data.sources.numpy_arrays import digits_table


@pytest.mark.parametrize("source", ["digits", "npz"])
def test_every_source_gives_whole_arrays(source: str, small_npz: Path) -> None:
    config = DataConfig(source=source, path=None if source == "digits" else str(small_npz))
    data = load(config)
    for part in (data.train, data.test):
        images, labels = part.images, part.known_labels
        assert images.dtype == np.uint8
        assert images.ndim == 4
        assert labels.dtype == np.int64
        assert len(images) == len(labels) > 0
        assert 0 <= labels.min() <= labels.max() < data.classes
    assert data.train.images.shape[1:] == data.test.images.shape[1:] == data.image_shape
    assert data.fingerprint() == load(config).fingerprint()


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    assert np.array_equal(digits_table(), np.column_stack([pixels, labels]))


def test_digits_are_all_there() -> None:
    data = load(DataConfig(source="digits"))
    assert (len(data.train.known_labels), len(data.test.known_labels), data.image_shape) == (1437, 360, (8, 8, 1))
    assert data.train.images.max() == 255
    assert len({image.tobytes() for image in np.concatenate([data.train.images, data.test.images])}) > 1790


def test_a_changed_pixel_changes_the_fingerprint(small_npz: Path) -> None:
    config = DataConfig(source="npz", path=str(small_npz))
    before = load(config).fingerprint()
    arrays = dict(np.load(small_npz))
    arrays["x_test"][0, 0, 0, 0] ^= 1
    np.savez(small_npz, **arrays)
    assert load(config).fingerprint() != before


def test_grey_images_and_names(small_npz: Path) -> None:
    arrays = dict(np.load(small_npz))
    arrays["x_train"], arrays["x_test"] = arrays["x_train"][..., 0], arrays["x_test"][..., 0]
    np.savez(small_npz, **arrays, class_names=np.array(list("abcde")))
    data = load(DataConfig(source="npz", path=str(small_npz)))
    assert data.image_shape == (12, 10, 1)
    assert data.class_names == ("a", "b", "c", "d", "e")


def rewrite(path: Path, **changes: Any) -> None:
    arrays = {**dict(np.load(path)), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "array y_test is missing; needed: x_train, y_train, x_test, y_test; found: "),
        ({"x_train": np.zeros((200, 12, 10, 3))}, "x_train is float64"),
        ({"x_train": np.zeros((200, 12), dtype=np.uint8)}, "x_train is uint8 with shape (200, 12)"),
        ({"x_train": np.zeros((200, 3, 12, 10), dtype=np.uint8)}, "looks like channels first"),
        ({"y_train": np.zeros(199, dtype=int)}, "one integer for each of the 200 images"),
        ({"y_train": np.zeros((200, 2), dtype=int)}, "y_train is int64 with shape (200, 2)"),
        ({"y_train": np.full(200, -1)}, "y_train holds -1; labels count from 0"),
        ({"x_test": np.zeros((50, 9, 9, 3), dtype=np.uint8)}, "they must be of one shape"),
        ({"class_names": np.array(["a"])}, "class_names holds 1 names"),
        ({"x_train": np.zeros((200, 0, 10, 3), dtype=np.uint8)}, "x_train is uint8 with shape (200, 0, 10, 3)"),
        ({"y_train": np.full(200, 2**63, dtype=np.uint64)}, "without large gaps"),
        ({"y_train": np.full(200, 30_000_000)}, "labels go up to 30000000"),
        ({"y_train": np.zeros(200, dtype=int), "y_test": np.zeros(50, dtype=int)}, "two or more classes"),
        (
            {"x_test": np.zeros((0, 12, 10, 3), dtype=np.uint8), "y_test": np.zeros(0, dtype=int)},
            "x_test holds no samples",
        ),
    ],
)
def test_wrong_arrays(small_npz: Path, changes: dict[str, Any], message: str) -> None:
    rewrite(small_npz, **changes)
    with pytest.raises(DataError) as error:
        load(DataConfig(source="npz", path=str(small_npz)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Tattler:
    """An object whose pickle is a call that leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_no_pickle_is_ever_loaded(small_npz: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    rewrite(small_npz, x_train=np.array([Tattler(trace)], dtype=object))
    with pytest.raises(DataError, match="not a readable"):
        load(DataConfig(source="npz", path=str(small_npz)))
    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"not a zip file at all", b"PK\x03\x04 cut short"])
def test_not_an_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"data.path = "):
        load(DataConfig(source="npz", path=str(path)))


def test_a_single_array_is_not_an_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="not"):
        load(DataConfig(source="npz", path=str(tmp_path / "one.npy")))


def test_missing_and_unknown(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        load(DataConfig(source="npz", path=str(tmp_path / "none.npz")))
    with pytest.raises(ConfigurationError, match=r"data.path: missing"):
        load(DataConfig(source="npz"))
    with pytest.raises(ConfigurationError, match="did you mean"):
        load(DataConfig(source="digit"))
    with pytest.raises(ConfigurationError, match="built in"):
        load(DataConfig(source="digits", path="x"))

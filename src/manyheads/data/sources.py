"""Where data come from: each source is a function from `[data]` to a `Dataset`, listed in SOURCES."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.data.arrays import Dataset, Images, Labels
from manyheads.errors import ConfigurationError, DataError
from manyheads.experiment import DataConfig, nearest
from manyheads.seeds import generator

DIGITS_TEST_SAMPLES = 360
NPZ_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def digits(config: DataConfig) -> Dataset:
    """The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn.

    They have no test part of their own: 360 samples, the same for every seed, are set aside.
    """
    from sklearn.datasets import load_digits

    if config.path is not None:
        raise ConfigurationError(f'data.path = "{config.path}": the digits are built in; leave the path out')
    raw = load_digits()
    images = np.rint(raw.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    labels = raw.target.astype(np.int64)
    order = generator(0, "digits").permutation(len(images))
    test, train = order[:DIGITS_TEST_SAMPLES], order[DIGITS_TEST_SAMPLES:]
    names = tuple(str(name) for name in raw.target_names)
    return Dataset("digits", images[train], labels[train], images[test], labels[test], names)


def npz(config: DataConfig) -> Dataset:
    """A NumPy file with `x_train`, `y_train`, `x_test`, `y_test`, and optionally `class_names`.

    Images are uint8, samples x height x width (x channels); labels are integers from 0.
    """
    if config.path is None:
        raise ConfigurationError('data.path: missing; data.source = "npz" reads a file, give its path')
    path = Path(config.path)
    try:
        # allow_pickle stays off: an array of objects could run code when it is loaded.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*NPZ_ARRAYS, "class_names") if name in file}
            present = list(file.files)
    except OSError as error:
        hint = "" if path.is_absolute() else f" (relative paths count from {Path.cwd()})"
        reason = error.strerror or "not an .npz file"
        raise DataError(f'data.path = "{path}": cannot be read: {reason}{hint}') from None
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f'data.path = "{path}": not a readable .npz file: {_one_line(error)}') from None
    missing = [name for name in NPZ_ARRAYS if name not in arrays]
    if missing:
        raise DataError(
            f'data.path = "{path}": array {missing[0]} is missing; '
            f"needed: {', '.join(NPZ_ARRAYS)}; found: {', '.join(present) or 'none'}"
        )
    train_images, train_labels = _part(path, arrays, "train")
    test_images, test_labels = _part(path, arrays, "test")
    if train_images.shape[1:] != test_images.shape[1:]:
        raise DataError(
            f'data.path = "{path}": x_train holds images of {train_images.shape[1:]}, '
            f"x_test of {test_images.shape[1:]}; they must be of one shape"
        )
    classes = 1 + int(max(train_labels.max(), test_labels.max()))
    if not 2 <= classes <= len(train_labels) + len(test_labels):
        raise DataError(
            f'data.path = "{path}": labels go up to {classes - 1}; needed: two or more classes, '
            "and no more than there are samples"
        )
    names = _class_names(path, arrays, classes)
    return Dataset(path.stem, train_images, train_labels, test_images, test_labels, names)


SOURCES: dict[str, Callable[[DataConfig], Dataset]] = {"digits": digits, "npz": npz}


def load(config: DataConfig) -> Dataset:
    """The data set that `[data]` describes."""
    if config.source not in SOURCES:
        raise ConfigurationError(f'data.source = "{config.source}": unknown source; {nearest(config.source, SOURCES)}')
    return SOURCES[config.source](config)


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _part(path: Path, arrays: Mapping[str, NDArray[Any]], part: str) -> tuple[Images, Labels]:
    images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    where = f'data.path = "{path}": '
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape[1:]:
        raise DataError(
            f"{where}x_{part} is {images.dtype} with shape {images.shape}; "
            "needed: uint8, samples x height x width (x channels)"
        )
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] > 4:
        raise DataError(
            f"{where}x_{part} has shape {images.shape}, which looks like channels first; "
            "needed: samples x height x width x channels (numpy: x.transpose(0, 2, 3, 1))"
        )
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) != len(images):
        raise DataError(
            f"{where}y_{part} is {labels.dtype} with shape {labels.shape}; "
            f"needed: one integer for each of the {len(images)} images"
        )
    if len(images) == 0:
        raise DataError(f"{where}x_{part} holds no samples")
    if labels.min() < 0:
        raise DataError(f"{where}y_{part} holds {labels.min()}; labels count from 0")
    if labels.max() >= 2**31:
        raise DataError(f"{where}y_{part} holds {labels.max()}; labels count from 0, without large gaps")
    return images if images.ndim == 4 else images[..., None], labels.astype(np.int64)


def _class_names(path: Path, arrays: Mapping[str, NDArray[Any]], classes: int) -> tuple[str, ...]:
    if "class_names" not in arrays:
        return tuple(str(label) for label in range(classes))
    names = tuple(str(name) for name in arrays["class_names"].ravel())
    if len(names) < classes:
        raise DataError(
            f'data.path = "{path}": class_names holds {len(names)} names, but labels go up to {classes - 1}'
        )
    return names

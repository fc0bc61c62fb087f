"""Sources of NumPy arrays: the built-in digits, and .npz files."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.config.data import SourceConfig
from manyheads.data.arrays import Images, Labels
from manyheads.data.images import ImageArray
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.sources.paths import cannot_read, path_of, where_of
from manyheads.errors import ConfigurationError, DataError, first_line
from manyheads.files import open_data
from manyheads.memory import check_memory
from manyheads.seeds import generator

DIGITS_TEST_SAMPLES = 360


def digits(config: SourceConfig) -> SourceListing:
    """List the 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn.

    They have no test part of their own: 360 samples, the same for every seed, are set aside.
    """
    if config.path is not None:
        raise ConfigurationError(
            f'{config.section}.path = "{config.path}": the digits are built in; leave the path out'
        )
    table = digits_table()
    images = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255.0 / 16.0)).astype(np.uint8)[..., None]
    labels = table[:, -1].astype(np.int64)
    order = generator(0, "digits").permutation(len(images))
    test, train = (
        Listing(ImageArray(images[part], "digits"), labels[part])
        for part in (order[:DIGITS_TEST_SAMPLES], order[DIGITS_TEST_SAMPLES:])
    )
    return SourceListing("digits", "digits", train, test, class_names=tuple("0123456789"))


def digits_table() -> NDArray[np.float64]:
    """Read a row of 64 pixels and a label for each digit from scikit-learn's file; importing it would take a second."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")


def npz(config: SourceConfig) -> SourceListing:
    """List a NumPy file with `x_train`, `y_train`, and mostly `x_test`, `y_test` and `class_names`.

    Images are uint8, samples x height x width (x channels); labels are integers from 0. With `label = "coarse"` the
    labels are `coarse_train` and `coarse_test`, their names `coarse_names`. A public set needs `x_train` only.
    """
    path = path_of(config)
    where, label = where_of(config, path), config.label or "y"
    arrays = _read(config, path, label)
    found = {
        part: _part(where, arrays, part, label, config.fine_label)
        for part in ("train", "test")
        if f"x_{part}" in arrays
    }
    shapes = {part: arrays[f"x_{part}"].shape[1:] for part in found}
    if len(set(shapes.values())) > 1:
        raise DataError(
            f"{where}: x_train holds images of {shapes['train']}, x_test of {shapes['test']}; they must be of one shape"
        )
    known = [listing.labels for listing in found.values() if listing.labels is not None]
    classes = 1 + max((int(labels.max()) for labels in known), default=-1)
    if classes > sum(map(len, known)):
        raise DataError(f"{where}: labels go up to {classes - 1}, which is more classes than there are samples")
    names = _class_names(where, arrays, classes, label)
    return SourceListing(
        path.stem,
        where,
        found["train"],
        found.get("test"),
        class_names=names or tuple(map(str, range(classes))),
        named=names is not None,
    )


def _read(config: SourceConfig, path: Path, label: str) -> dict[str, NDArray[Any]]:
    where, fine = where_of(config, path), config.fine_label
    wanted = ["class_names", *(f"{name}_names" for name in (label, "fine"))]
    wanted += [f"{name}_{part}" for part in ("train", "test") for name in ("x", label, fine) if name]
    try:
        # allow_pickle stays off: an array of objects could run code when it is loaded.
        with open_data(path) as stream, np.load(stream, allow_pickle=False) as file:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in file.zip.infolist()}
            check_memory(sum(sizes.get(name, 0) for name in set(wanted)), "its arrays")
            arrays = {name: file[name] for name in dict.fromkeys(wanted) if name in file}
            present = list(file.files)
    except MemoryError as error:
        raise DataError(f"{where}: out of memory: {error}; save its images as files and pack these") from None
    except OSError as error:
        raise cannot_read(config, path, error.strerror or "not an .npz file") from None
    except Exception as error:  # whatever a damaged file makes a reader raise
        reason = first_line(error)
        hint = "; names have to be text: np.array(names, dtype=str)" if "Object arrays" in reason else ""
        raise DataError(f"{where}: not a readable .npz file: {reason}{hint}") from None
    tested = "x_test" in arrays or f"{label}_test" in arrays
    labelled = tested or label != "y"  # a public set needs no labels, unless some are asked for
    of_part = ["x", *([label] if labelled else []), *([fine] if fine else [])]
    needed = [f"{name}_{part}" for part in (("train", "test") if tested else ("train",)) for name in of_part]
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise DataError(
            f"{where}: array {missing[0]} is missing; needed: {', '.join(needed)}; "
            f"found: {', '.join(present) or 'none'}"
        )
    return arrays


def _part(where: str, arrays: Mapping[str, NDArray[Any]], part: str, label: str, fine: str | None) -> Listing:
    images = _images(f"{where}: x_{part}", arrays[f"x_{part}"])
    labels, finer = (
        _labels(f"{where}: {name}_{part}", arrays[f"{name}_{part}"], len(images))
        if name and f"{name}_{part}" in arrays
        else None
        for name in (label, fine)
    )
    return Listing(ImageArray(images, f"{where}: x_{part}"), labels, finer)


def _images(what: str, images: NDArray[Any]) -> Images:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape[1:]:
        hint = ""
        if images.dtype.kind == "f" and images.size:
            low, high = float(images.min()), float(images.max())
            scale = (
                "numpy: (255 * x).round().astype('uint8')" if low >= 0.0 and high <= 1.0 else "scale them to 0 ... 255"
            )
            hint = f" (its values are {low:g} to {high:g}; {scale})"
        raise DataError(
            f"{what} is {images.dtype} with shape {images.shape}; "
            f"needed: uint8, samples x height x width (x channels){hint}"
        )
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] > 4:
        raise DataError(
            f"{what} has shape {images.shape}, which looks like channels first; "
            "needed: samples x height x width x channels (numpy: x.transpose(0, 2, 3, 1))"
        )
    if len(images) == 0:
        raise DataError(f"{what} holds no samples")
    return np.ascontiguousarray(images if images.ndim == 4 else images[..., None])


def _labels(what: str, labels: NDArray[Any], images: int) -> Labels:
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) != images:
        words = labels.dtype.kind in "US" and labels.shape == (images,)
        hint = " (numpy: class_names, y = np.unique(y, return_inverse=True))" if words else ""
        raise DataError(
            f"{what} is {labels.dtype} with shape {labels.shape}; "
            f"needed: one integer for each of the {images} images{hint}"
        )
    if labels.min() < 0:
        raise DataError(f"{what} holds {labels.min()}; labels count from 0")
    if labels.max() >= 2**31:
        raise DataError(f"{what} holds {labels.max()}; labels count from 0, without large gaps")
    return labels.astype(np.int64)


def _class_names(where: str, arrays: Mapping[str, NDArray[Any]], classes: int, label: str) -> tuple[str, ...] | None:
    keys = ("class_names", "fine_names") if label == "y" else (f"{label}_names",)
    for key in keys:
        if key in arrays and classes:
            names = tuple(str(name) for name in arrays[key].ravel())
            if len(names) < classes:
                raise DataError(f"{where}: {key} holds {len(names)} names, but labels go up to {classes - 1}")
            return names
    return None

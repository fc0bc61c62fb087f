"""The source of torchvision's data sets."""

import inspect
import warnings
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.data import SourceConfig
from manyheads.config.messages import nearest
from manyheads.data.images import ImageArray, LibraryImages
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.sources.library import library
from manyheads.data.sources.paths import path_of
from manyheads.errors import ConfigurationError, DataError, first_line


def torchvision(config: SourceConfig) -> SourceListing:
    """List a data set of torchvision by the name of its class, such as CIFAR10, below the folder `path`."""
    datasets = library("torchvision.datasets", config)
    name, root, key = config.name, path_of(config), f"{config.section}.name"
    if name is None:
        raise ConfigurationError(f'{key}: missing; which data set of torchvision? name = "CIFAR10"')
    divided = {"train", "split"}  # the parameter that selects a part
    known = [n for n in datasets.__all__ if divided & inspect.signature(getattr(datasets, n)).parameters.keys()]
    if name not in known:
        raise ConfigurationError(
            f'{key} = "{name}": torchvision has no such data set with a training part; {nearest(name, known)}'
        )
    parts = {part: _torchvision_part(getattr(datasets, name), root, config, part) for part in ("train", "test")}
    train, test = (_of_torchvision(dataset, f"{name} {part}") for part, dataset in parts.items())
    assert train.labels is not None
    assert test.labels is not None
    classes = 1 + int(max(train.labels.max(), test.labels.max()))
    names = [str(label) for label in getattr(parts["train"], "classes", None) or ()]
    named = len(names) >= classes
    shown = tuple(names) if named else tuple(map(str, range(classes)))
    return SourceListing(name, f'{key} = "{name}"', train, test, class_names=shown, named=named)


def _torchvision_part(kind: Any, root: Path, config: SourceConfig, part: str) -> Any:
    parameters = inspect.signature(kind).parameters
    which = {"train": part == "train"} if "train" in parameters else {"split": part}
    download = {"download": bool(config.download)} if "download" in parameters else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return kind(str(root), **which, **download)
            except ValueError as error:
                if which != {"split": "test"} or "'val'" not in str(error):
                    raise
                return kind(str(root), split="val", **download)
    except Exception as error:
        hint = "" if config.download or not download else f"; {config.section}.download = true fetches it"
        raise DataError(
            f'{config.section}.path = "{root}": {config.name} cannot be read: {first_line(error)}{hint}'
        ) from None


def _of_torchvision(dataset: Any, where: str) -> Listing:
    """List arrays if the data set holds arrays, otherwise images that it decodes one by one."""
    labels = next((getattr(dataset, key) for key in ("targets", "labels", "_labels") if hasattr(dataset, key)), None)
    if labels is None:
        known = getattr(dataset, "_samples", None) or getattr(dataset, "samples", None)  # (file, label)
        labels = [int(entry[1]) for entry in known or dataset]
    pixels = getattr(dataset, "data", None)
    if pixels is not None:
        pixels = np.asarray(pixels)
        if pixels.dtype == np.uint8 and pixels.ndim in (3, 4):
            if pixels.ndim == 3:
                pixels = pixels[..., None]
            elif pixels.shape[1] in (1, 3) and pixels.shape[3] > 4:
                pixels = pixels.transpose(0, 2, 3, 1)
            return Listing(ImageArray(np.ascontiguousarray(pixels), where), np.asarray(labels).astype(np.int64))
    rows = LibraryImages(dataset, itemgetter(0), where, np.arange(len(dataset)))
    return Listing(rows, np.asarray(labels).astype(np.int64))

"""Data sets that come through other libraries. They are imported only when asked for."""

import contextlib
import importlib
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.data.arrays import Labels
from manyheads.data.listing import Found, Listing
from manyheads.data.pictures import Array, Entries
from manyheads.data.sources.paths import path_of
from manyheads.errors import ConfigurationError, DataError
from manyheads.experiment import SourceConfig, nearest


def library(name: str, extra: str) -> Any:
    """A library that only some users need, or one line that says how to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other libraries warn of when they are imported
            return importlib.import_module(name)
    except Exception as error:  # one that was built for another torch fails in its own ways
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported: {_line(error)}"
        raise ConfigurationError(
            f'data.source = "{extra}": the library {name} {reason}; pip install "manyheads[{extra}]"'
        ) from None


def torchvision(config: SourceConfig) -> Found:
    """A data set of torchvision by the name of its class, such as CIFAR10, below the folder `path`."""
    datasets = library("torchvision.datasets", "torchvision")
    name, root = config.name, path_of(config)
    if name is None:
        raise ConfigurationError('data.name: missing; which data set of torchvision? name = "CIFAR10"')
    divided = {"train", "split"}  # how a data set is asked for a part
    known = [n for n in datasets.__all__ if divided & inspect.signature(getattr(datasets, n)).parameters.keys()]
    if name not in known:
        raise ConfigurationError(
            f'data.name = "{name}": torchvision has no such data set with a training part; {nearest(name, known)}'
        )
    parts = {part: _torchvision_part(getattr(datasets, name), root, config, part) for part in ("train", "test")}
    train, test = (_of_torchvision(dataset, f"{name} {part}") for part, dataset in parts.items())
    assert train.labels is not None
    assert test.labels is not None
    classes = 1 + int(max(train.labels.max(), test.labels.max()))
    names = [str(label) for label in getattr(parts["train"], "classes", None) or ()]
    named = len(names) >= classes
    shown = tuple(names) if named else tuple(map(str, range(classes)))
    return Found(name, f'data.name = "{name}"', train, test, class_names=shown, named=named)


def _torchvision_part(kind: Any, root: Path, config: SourceConfig, part: str) -> Any:
    parameters = inspect.signature(kind).parameters
    which = {"train": part == "train"} if "train" in parameters else {"split": part}
    download = {"download": bool(config.download)} if "download" in parameters else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kind(str(root), **which, **download)
    except Exception as error:
        hint = "" if config.download or not download else "; data.download = true fetches it"
        raise DataError(f'data.path = "{root}": {config.name} cannot be read: {_line(error)}{hint}') from None


def _of_torchvision(dataset: Any, where: str) -> Listing:
    """Arrays where the data set holds arrays, otherwise images that it decodes one by one."""
    labels = next((getattr(dataset, key) for key in ("targets", "labels", "_labels") if hasattr(dataset, key)), None)
    if labels is None:
        labels = [int(dataset[number][1]) for number in range(len(dataset))]
    pixels = getattr(dataset, "data", None)
    if pixels is not None:
        pixels = np.asarray(pixels)
        if pixels.dtype == np.uint8 and pixels.ndim in (3, 4):
            if pixels.ndim == 3:
                pixels = pixels[..., None]
            elif pixels.shape[1] in (1, 3) and pixels.shape[3] > 4:
                pixels = pixels.transpose(0, 2, 3, 1)
            return Listing(Array(np.ascontiguousarray(pixels), where), np.asarray(labels).astype(np.int64))
    rows = Entries(dataset, itemgetter(0), where, np.arange(len(dataset)))
    return Listing(rows, np.asarray(labels).astype(np.int64))


def huggingface(config: SourceConfig) -> Found:
    """A data set of the `datasets` library: a folder of save_to_disk, local parquet files, or a name on the hub."""
    datasets = library("datasets", "huggingface")
    path = str(path_of(config))
    where = f'data.path = "{path}"'
    with _polite(datasets, offline=not config.download):
        try:
            splits = _hugging_splits(datasets, path, config)
        except Exception as error:
            fetch = not config.download and not Path(path).exists()
            hint = "; data.download = true fetches it from the hub" if fetch else ""
            raise DataError(f"{where}: cannot be read: {_line(error)}{hint}") from None
        names = {"train_split": config.train_split or "train", "test_split": config.test_split or "test"}
        for key, name in names.items():
            if name not in splits and (key == "train_split" or config.test_split):
                raise DataError(f'data.{key} = "{name}": {where} has no such split; {nearest(name, splits)}')
        first = splits[names["train_split"]]
        image = _image_column(datasets, first, where)
        found = [
            _of_hugging(splits[name], image, config, f"{where}: {name}") for name in names.values() if name in splits
        ]
    if found[0].labels is None:
        return Found(Path(path).name, where, found[0])
    classes, found = _numbered(getattr(first.features[_label_column(first, config)], "names", None), found)
    return Found(Path(path).name, where, found[0], found[1] if len(found) > 1 else None, class_names=classes)


@contextlib.contextmanager
def _polite(datasets: Any, *, offline: bool) -> Iterator[None]:
    """Without progress bars, and unless allowed without the network; the library keeps both in globals."""
    shown, before = datasets.is_progress_bar_enabled(), datasets.config.HF_HUB_OFFLINE
    datasets.disable_progress_bars()
    datasets.config.HF_HUB_OFFLINE = before or offline
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
        if shown:
            datasets.enable_progress_bars()


def _hugging_splits(datasets: Any, path: str, config: SourceConfig) -> dict[str, Any]:
    folder = Path(path)
    if (folder / "dataset_dict.json").is_file():
        return dict(datasets.load_from_disk(path))
    if (folder / "dataset_info.json").is_file():
        return {config.train_split or "train": datasets.load_from_disk(path)}
    if folder.exists():
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
        if not files:
            raise ConfigurationError("holds no .parquet files, and is not a folder of save_to_disk")
        by_split: dict[str, list[str]] = {}
        for file in files:  # train-00000-of-00002.parquet, or train/0000.parquet
            inside = file.relative_to(folder).parts[0] if folder.is_dir() else "train"
            by_split.setdefault(inside.removesuffix(".parquet").split("-")[0], []).append(str(file))
        return dict(datasets.load_dataset("parquet", data_files=by_split))
    return dict(datasets.load_dataset(path, config.name))


def _image_column(datasets: Any, split: Any, where: str) -> str:
    found: list[str] = [name for name, feature in split.features.items() if isinstance(feature, datasets.Image)]
    if not found:
        raise DataError(f"{where}: has no column of images; columns: {', '.join(split.features)}")
    return found[0]


def _label_column(split: Any, config: SourceConfig) -> Any:
    """The one that is named, or the first that holds classes, or `label`."""
    if config.label is not None:
        return config.label
    classes: list[str] = [name for name, feature in split.features.items() if hasattr(feature, "names")]
    fallback = "label" if "label" in split.features else None
    return classes[0] if classes else fallback


def _of_hugging(split: Any, image: str, config: SourceConfig, where: str) -> Listing:
    def column(name: str | None) -> Labels | None:
        if name is None:
            return None
        if name not in split.features:
            raise DataError(f"{where}: has no column {name}; {nearest(name, split.features)}")
        return np.asarray(split[name][:])

    rows = Entries(split, itemgetter(image), where, np.arange(len(split)))
    return Listing(rows, column(_label_column(split, config)), column(config.fine_label))


def _numbered(names: Sequence[str] | None, found: list[Listing]) -> tuple[tuple[str, ...], list[Listing]]:
    """The names of the classes, and labels that count from 0; labels without names are numbered in their order."""
    if names is not None:
        labels = [np.asarray(part.labels).astype(np.int64) for part in found]
    else:
        kinds: NDArray[Any] = np.unique(np.concatenate([np.asarray(part.labels) for part in found]))
        names = [str(kind) for kind in kinds]
        labels = [np.searchsorted(kinds, np.asarray(part.labels)).astype(np.int64) for part in found]
    return tuple(names), [replace(part, labels=own) for part, own in zip(found, labels, strict=True)]


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__

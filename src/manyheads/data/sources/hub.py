"""The source of data sets of the `datasets` library."""

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from manyheads.config.data import SourceConfig
from manyheads.config.messages import nearest
from manyheads.data.arrays import Labels
from manyheads.data.images import LibraryImages, decoded
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.sources.library import library
from manyheads.data.sources.paths import path_of, where_of
from manyheads.errors import ConfigurationError, DataError, first_line
from manyheads.files import open_data


def huggingface(config: SourceConfig) -> SourceListing:
    """List a data set of the `datasets` library: a folder of save_to_disk, parquet files, or a name on the hub."""
    datasets = library("datasets", config)
    path = str(path_of(config))
    where = where_of(config, path)
    with _polite(datasets, offline=not config.download):
        splits = _wanted(_splits(datasets, path, config), config, where)
        image = _image_column(datasets, splits[0][1], where)
        raw = datasets.Image(decode=False)  # so that images are decoded as those in files are
        found = [_listing(split, image, raw, config, f"{where}: {name}") for name, split in splits]
    if found[0].labels is None:
        return SourceListing(Path(path).name, where, found[0])
    names = getattr(splits[0][1].features[_label_column(splits[0][1], config)], "names", None)
    named = names is not None or np.asarray(found[0].labels).dtype.kind == "U"
    if names is None:  # labels without names are numbered in their order
        kinds: NDArray[Any] = np.unique(np.concatenate([np.asarray(part.labels) for part in found]))
        names = [str(kind) for kind in kinds]
        found = [replace(part, labels=np.searchsorted(kinds, np.asarray(part.labels))) for part in found]
    found = [replace(part, labels=np.asarray(part.labels).astype(np.int64)) for part in found]
    test = found[1] if len(found) > 1 else None
    return SourceListing(Path(path).name, where, found[0], test, class_names=tuple(map(str, names)), named=named)


def _wanted(splits: Mapping[str, Any], config: SourceConfig, where: str) -> list[tuple[str, Any]]:
    """Return the training split, and the test split if there is one."""
    tests = [name for name in ("test", "validation", "val") if name in splits]
    wanted = {"train_split": config.train_split or "train", "test_split": config.test_split or (tests or ["test"])[0]}
    for key, name in wanted.items():
        if name not in splits and (key == "train_split" or config.test_split):
            raise DataError(f'{config.section}.{key} = "{name}": {where} has no such split; {nearest(name, splits)}')
    return [(name, splits[name]) for name in wanted.values() if name in splits]


def _splits(datasets: Any, path: str, config: SourceConfig) -> dict[str, Any]:
    try:
        return _read(datasets, path, config)
    except Exception as error:  # the library raises what its many readers raise
        fetch = not config.download and not Path(path).exists()
        hint = f"; {config.section}.download = true fetches it from the hub" if fetch else ""
        raise DataError(f"{where_of(config, path)}: cannot be read: {first_line(error)}{hint}") from None


@contextlib.contextmanager
def _polite(datasets: Any, *, offline: bool) -> Iterator[None]:
    """Turn off progress bars and, unless allowed, the network; the library keeps both in globals."""
    shown, before = datasets.is_progress_bar_enabled(), datasets.config.HF_HUB_OFFLINE
    verbosity = datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what is wrong is said once, by us
    datasets.config.HF_HUB_OFFLINE = before or offline
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
        datasets.logging.set_verbosity(verbosity)
        if shown:
            datasets.enable_progress_bars()


def _read(datasets: Any, path: str, config: SourceConfig) -> dict[str, Any]:
    folder = Path(path)
    for special in (entry for entry in (folder, *folder.rglob("*")) if entry.exists() and not _plain(entry)):
        raise ConfigurationError(f"{special} is a pipe, a socket or a device")
    if (folder / "dataset_dict.json").is_file():
        return dict(datasets.load_from_disk(path))
    if (folder / "dataset_info.json").is_file():
        return {config.train_split or "train": datasets.load_from_disk(path)}
    if folder.exists():
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
        if not files:
            raise ConfigurationError("holds no .parquet files, and is not a folder of save_to_disk")
        by_split: dict[str, list[str]] = {}
        for file in files:
            by_split.setdefault(_split_of(file, folder), []).append(str(file))
        return dict(datasets.load_dataset("parquet", data_files=by_split))
    return dict(datasets.load_dataset(path, config.name, trust_remote_code=False))  # old versions would run a script


def _plain(path: Path) -> bool:
    return path.is_file() or path.is_dir()


def _split_of(file: Path, folder: Path) -> str:
    """Return the split of a file: data/train-00000-of-00002.parquet (on the hub), train.parquet, train/0000.parquet."""
    if file == folder:
        return "train"
    shard = re.match(r"(.+?)-\d+-of-\d+", file.name)
    return shard[1] if shard else file.relative_to(folder).parts[0].removesuffix(".parquet").split("-")[0]


def _image_column(datasets: Any, split: Any, where: str) -> str:
    found: list[str] = [name for name, feature in split.features.items() if isinstance(feature, datasets.Image)]
    if not found:
        raise DataError(f"{where}: has no column of images; columns: {', '.join(split.features)}")
    return found[0]


def _label_column(split: Any, config: SourceConfig) -> Any:
    """Return the column that is named, or the first that holds classes, or `label`."""
    if config.label is not None:
        return config.label
    classes: list[str] = [name for name, feature in split.features.items() if hasattr(feature, "names")]
    fallback = "label" if "label" in split.features else None
    return classes[0] if classes else fallback


def _decoded(entry: Mapping[str, Any], column: str, mode: str | None) -> Any:
    """Decode the image of a row, which holds the bytes of a file or names one on this machine."""
    raw = entry[column]
    if raw is None or (raw["bytes"] is None and raw["path"] is None):
        return None
    file: BinaryIO = open_data(Path(raw["path"])) if raw["bytes"] is None else io.BytesIO(raw["bytes"])
    with file:
        image = decoded(file)
    return image if mode in (None, image.mode) else image.convert(mode)


def _listing(split: Any, image: str, raw: Any, config: SourceConfig, where: str) -> Listing:
    def column(name: str | None) -> Labels | None:
        if name is None:
            return None
        if name not in split.features:
            raise DataError(f"{where}: has no column {name}; {nearest(name, split.features)}")
        values = np.asarray(split[name][:])
        if values.dtype.kind == "O" or (values.dtype.kind in "if" and not (values >= 0).all()):
            raise DataError(f"{where}: {name} of some samples is missing or -1; give another split")
        return values

    decode = partial(_decoded, column=image, mode=split.features[image].mode)
    rows = LibraryImages(split.cast_column(image, raw), decode, where, np.arange(len(split)))
    return Listing(rows, column(_label_column(split, config)), column(config.fine_label))

"""Image files: one sub-folder per class; or one folder (or .npz file) per client."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from manyheads.data.arrays import Labels
from manyheads.data.listing import Found, Listing
from manyheads.data.pictures import Joined, files
from manyheads.data.sources.paths import folder_of
from manyheads.data.sources.plain import npz
from manyheads.errors import DataError
from manyheads.experiment import SourceConfig

SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
})  # fmt: skip
TRAIN, TESTS, PUBLIC = "train", ("test", "val"), "public"


def folder(config: SourceConfig) -> Found:
    """One sub-folder per class, and mostly a separate test part.

    FOLDER/CLASS/*.png with FOLDER/test/CLASS/*.png, or FOLDER/train/CLASS with FOLDER/test/CLASS; `val` may stand for
    `test`. A folder that holds images and no sub-folders has no labels: a public set.
    """
    path = folder_of(config)
    where, notes = f'data.path = "{path}"', _Notes()
    base = path / TRAIN if (path / TRAIN).is_dir() else path
    tests = [path / name for name in TESTS if (path / name).is_dir()]
    classes = [name for name in _folders(base) if base != path or name not in (*TESTS, PUBLIC)]
    if not classes:
        images = list(_images(base, notes))
        if not images:
            raise DataError(f"{where}: holds neither images nor sub-folders of images, one per class")
        return Found(path.name, where, Listing(files(base, images), None), notes=notes.lines())
    train = _labelled(base, classes, notes)
    test = None
    if tests:
        unknown = sorted(set(_folders(tests[0])) - set(classes))
        if unknown:
            raise DataError(f"{tests[0] / unknown[0]}: the training part has no class {unknown[0]}")
        test = _labelled(tests[0], [name for name in classes if (tests[0] / name).is_dir()], notes, classes)
    return Found(path.name, where, train, test, class_names=tuple(classes), notes=notes.lines())


def clients(config: SourceConfig) -> Found:
    """One folder or .npz file per client, each as the sources above read it; `public/` beside them is the public set.

    Clients are numbered in the order of their names.
    """
    path = folder_of(config)
    where = f'data.path = "{path}"'
    entries = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    members = {e.stem if e.is_file() else e.name: e for e in entries if e.is_dir() or e.suffix == ".npz"}
    public = members.pop(PUBLIC, None)
    if not members:
        raise DataError(f"{where}: holds no clients; needed: one folder or .npz file for each")
    found = [_client(config, entry) for entry in members.values()]
    names = _common_classes(found, list(members), config.classes)
    tests = [one.test for one in found]
    lacking = [name for name, test in zip(members, tests, strict=True) if test is None]
    if lacking and len(lacking) < len(members):
        raise DataError(f"{where}: client {lacking[0]} has no test part while others have one; give all of them one")
    return Found(
        path.name,
        where,
        _joined([one.train for one in found]),
        None if lacking else _joined([test for test in tests if test is not None]),
        None if public is None else _public(_client(config, public), names),
        class_names=names,
        client_names=tuple(members),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _client(config: SourceConfig, path: Path) -> Found:
    own = config.model_copy(update={"path": str(path)})
    return folder(own) if path.is_dir() else npz(own)


def _public(found: Found, names: Sequence[str]) -> Listing:
    """Its labels count, for measurements, where its classes are those of the clients."""
    number = np.array([names.index(name) if name in names else -1 for name in found.class_names], dtype=np.int64)
    return found.train.renumbered(number)


def _common_classes(
    found: list[Found], names: Sequence[str], wanted: Sequence[str] | Sequence[int] | None
) -> tuple[str, ...]:
    """All clients speak of the same classes; where some lack one on purpose, `data.classes` says which there are."""
    for number, one in enumerate(found):
        if one.train.labels is None:
            raise DataError(f"client {names[number]}: {one.where} has no labels; needed: one sub-folder per class")
    everything = sorted({name for one in found for name in one.class_names})
    first = found[0].class_names
    if wanted is not None and all(isinstance(name, str) for name in wanted):
        for number, one in enumerate(found):
            found[number] = _renumbered(one, [str(name) for name in wanted])
        return tuple(str(name) for name in wanted)
    for name, one in zip(names, found, strict=True):
        if one.class_names != first:
            different = sorted(set(one.class_names) ^ set(first))
            has, lacks = (name, names[0]) if different[0] in one.class_names else (names[0], name)
            raise DataError(
                f"client {has} has class {different[0]}, which client {lacks} lacks; if that is meant, name all: "
                f"data.classes = {everything if len(everything) <= 8 else [*everything[:8], '...']}"
            )
    return first


def _renumbered(found: Found, wanted: list[str]) -> Found:
    """One client's classes in the numbers of all; it need not have every one."""
    own = [name for name in wanted if name in found.class_names]
    subset = found.only(own)
    number = np.array([wanted.index(name) for name in own], dtype=np.int64)

    def renumber(part: Listing) -> Listing:
        assert part.labels is not None
        return dataclasses.replace(part, labels=number[part.labels])

    test = None if subset.test is None else renumber(subset.test)
    return dataclasses.replace(subset, train=renumber(subset.train), test=test)


def _joined(parts: Sequence[Listing]) -> Listing:
    labels = [part.labels for part in parts if part.labels is not None]
    fine = [part.fine for part in parts if part.fine is not None]
    starts = np.cumsum([0, *(len(part.pictures) for part in parts)])
    joined = Listing(
        Joined(tuple(part.pictures for part in parts)),
        np.concatenate(labels),
        np.concatenate(fine) if len(fine) == len(parts) else None,
        np.repeat(np.arange(len(parts)), np.diff(starts)),
    )
    return joined.keep(np.concatenate([start + part.used for start, part in zip(starts, parts, strict=False)]))


def _labelled(base: Path, classes: Sequence[str], notes: "_Notes", numbers: Sequence[str] | None = None) -> Listing:
    """The files of each class, in the order of their names."""
    paths: list[str] = []
    counts = []
    for name in classes:
        images = [f"{name}/{file}" for file in _images(base / name, notes)]
        if not images:
            raise DataError(f"{base / name}: holds no images; add some or remove the empty class")
        paths += images
        counts.append(len(images))
    order = list(numbers or classes)
    labels: Labels = np.repeat([order.index(name) for name in classes], counts).astype(np.int64)
    return Listing(files(base, paths), labels)


def _folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(path: Path, notes: "_Notes") -> Iterator[str]:
    """The image files of a folder and of what lies below it, by name."""
    for root, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            full = Path(root) / name
            if full.suffix.lower() in SUFFIXES:
                yield str(full.relative_to(path))
            else:
                notes.other.append(str(full))


class _Notes:
    """What was seen beside the images."""

    def __init__(self) -> None:
        self.other: list[str] = []

    def lines(self) -> tuple[str, ...]:
        if not self.other:
            return ()
        count = len(self.other)
        return (f"{count} file{'s are' if count > 1 else ' is'} no image by name and left out: {self.other[0]}",)

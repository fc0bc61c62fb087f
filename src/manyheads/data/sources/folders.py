"""Sources of image files: one sub-folder per class; or one folder (or .npz file) per client."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from manyheads.config.data import SourceConfig
from manyheads.config.messages import nearest
from manyheads.data.arrays import Labels
from manyheads.data.images import JoinedImages, image_files
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.sources.numpy_arrays import npz
from manyheads.data.sources.paths import folder_of, where_of
from manyheads.errors import ConfigurationError, DataError

SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
})  # fmt: skip
TRAIN, TESTS, PUBLIC = ("train", "training"), ("test", "testing", "val", "valid", "validation"), "public"
PARTS = frozenset({*TRAIN, *TESTS, PUBLIC})
OTHER_FOLDERS = {"pack.json": "packed", "dataset_dict.json": "huggingface", "dataset_info.json": "huggingface"}


def folder(config: SourceConfig) -> SourceListing:
    """List image files in one sub-folder per class, mostly with a separate test part.

    FOLDER/CLASS/*.png with FOLDER/test/CLASS/*.png, or FOLDER/train/CLASS with FOLDER/test/CLASS; `val` may stand for
    `test`, and FOLDER/public is a public part. A folder that holds images and no sub-folders has no labels.
    """
    path = folder_of(config)
    where, notes, parts = where_of(config, path), _Notes(), _parts(path)
    base = next((parts[name] for name in TRAIN if name in parts), path)
    classes = [name for name in _folders(base) if base != path or name.casefold() not in PARTS]
    if not classes:
        return _unlabelled(path, base, where, notes)
    _refuse_organisations(base, classes, where)
    train = _labelled(base, classes, notes)
    notes.beside += [str(e) for e in sorted(base.iterdir()) if e.suffix.lower() in SUFFIXES and e.is_file()]
    if base != path:
        notes.beside += [str(path / name) for name in _folders(path) if name.casefold() not in PARTS]
    tests = [parts[name] for name in TESTS if name in parts]
    notes.flat += [str(test) for test in tests if not _folders(test)]
    tests = [test for test in tests if _folders(test)]
    found = SourceListing(
        path.name, where, train, _test(tests[0], classes, notes) if tests else None, class_names=tuple(classes)
    )
    if PUBLIC in parts:
        found = dataclasses.replace(found, public=_public(folder(_at(config, parts[PUBLIC])), classes))
    return dataclasses.replace(found, notes=notes.lines())


def _parts(path: Path) -> dict[str, Path]:
    """Return the sub-folders whose names have a meaning, in upper or lower case."""
    return {name.casefold(): path / name for name in _folders(path) if name.casefold() in PARTS}


def _unlabelled(path: Path, base: Path, where: str, notes: "_Notes") -> SourceListing:
    if base != path and any(name.casefold() not in PARTS for name in _folders(path)):
        raise DataError(
            f"{base}: holds no sub-folders, one per class, though it is called {base.name}; if it is a class itself, "
            "put all classes below another folder of this name"
        )
    images = list(_images(base, notes))
    if not images:
        kind = next((source for file, source in OTHER_FOLDERS.items() if (path / file).exists()), None)
        hint = f'; it looks like source = "{kind}"' if kind else ""
        raise DataError(f"{where}: holds neither images nor sub-folders of images, one per class{hint}")
    return SourceListing(path.name, where, Listing(image_files(base, images), None), notes=notes.lines())


def _refuse_organisations(base: Path, classes: Sequence[str], where: str) -> None:
    """Raise if folders hold the same folders and no images: then they are not classes."""
    inner = [set(_folders(base / name)) for name in classes]
    shared = sorted(set.intersection(*inner))
    if len(classes) > 1 and shared and not any(_holds_images(base / name) for name in classes):
        raise DataError(
            f"{where}: its sub-folders {classes[0]}, {classes[1]}, ... hold no images, but all hold {shared[0]}/, "
            'so they are no classes; one folder per organisation is source = "clients"'
        )


def _test(path: Path, classes: Sequence[str], notes: "_Notes") -> Listing:
    unknown = sorted(set(_folders(path)) - set(classes))
    if unknown:
        raise DataError(f"{path / unknown[0]}: the training part has no class {unknown[0]}")
    return _labelled(path, [name for name in classes if (path / name).is_dir()], notes, classes)


def clients(config: SourceConfig) -> SourceListing:
    """List one folder or .npz file per client, as `folder` and `npz` do; `public/` beside them is the public set.

    Clients are numbered in the order of their names.
    """
    path = folder_of(config)
    where = where_of(config, path)
    entries = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    members: dict[str, Path] = {}
    for entry in entries:
        if entry.is_dir() or entry.suffix == ".npz":
            name = entry.name if entry.is_dir() else entry.stem
            if name in members:
                raise DataError(f"{members[name]} and {entry}: two clients of one name; rename one")
            members[name] = entry
    public = members.pop(PUBLIC, None)
    unlabelled = config.model_copy(update={"label": None, "fine_label": None})
    if not members:
        raise DataError(f"{where}: holds no clients; needed: one folder or .npz file for each")
    found = [_client(config, entry) for entry in members.values()]
    names = _common_classes(found, list(members), config.classes)
    named, tests = all(one.named for one in found), [one.test for one in found]
    lacking = [name for name, test in zip(members, tests, strict=True) if test is None]
    if lacking and len(lacking) < len(members):
        raise DataError(f"{where}: client {lacking[0]} has no test part while others have one; give all of them one")
    return SourceListing(
        path.name,
        where,
        _joined([one.train for one in found]),
        None if lacking else _joined([test for test in tests if test is not None]),
        None if public is None else _public(_client(unlabelled, public), names if named else ()),
        class_names=names,
        named=named,
        client_names=tuple(members),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _client(config: SourceConfig, path: Path) -> SourceListing:
    return folder(_at(config, path)) if path.is_dir() else npz(_at(config, path))


def _at(config: SourceConfig, path: Path) -> SourceConfig:
    return config.model_copy(update={"path": str(path)})


def _public(found: SourceListing, names: Sequence[str]) -> Listing:
    """List a public part; its labels count, for measurements, if its classes are those of the private data by name."""
    same = names if found.named else ()
    number = np.array([same.index(name) if name in same else -1 for name in found.class_names], dtype=np.int64)
    return found.train.renumbered(number)


def _common_classes(
    found: list[SourceListing], names: Sequence[str], wanted: Sequence[str] | Sequence[int] | None
) -> tuple[str, ...]:
    """Return the classes, which must be the same for all clients unless `data.classes` names them."""
    for number, one in enumerate(found):
        if one.train.labels is None:
            raise DataError(f"client {names[number]}: {one.where} has no labels; needed: one sub-folder per class")
    everything = sorted({name for one in found for name in one.class_names})
    first = found[0].class_names
    if wanted is not None and isinstance(wanted[0], str):
        chosen = [str(name) for name in wanted]
        for name in chosen:
            if name not in everything:
                raise ConfigurationError(f"data.classes: no client has class {name}; {nearest(name, everything)}")
        return _renumber_all(found, names, chosen)
    for name, one in zip(names, found, strict=True):
        if set(one.class_names) != set(first):
            different = sorted(set(one.class_names) ^ set(first))
            has, lacks = (name, names[0]) if different[0] in one.class_names else (names[0], name)
            raise DataError(
                f"client {has} has class {different[0]}, which client {lacks} lacks; if that is meant, name all: "
                f"data.classes = {everything if len(everything) <= 8 else [*everything[:8], '...']}"
            )
    return _renumber_all(found, names, list(first))


def _renumber_all(found: list[SourceListing], names: Sequence[str], wanted: list[str]) -> tuple[str, ...]:
    for number, one in enumerate(found):
        if not set(one.class_names) & set(wanted):
            raise DataError(f"client {names[number]} has none of data.classes = {wanted}; leave it out or name more")
        found[number] = _renumbered(one, wanted)
    return tuple(wanted)


def _renumbered(found: SourceListing, wanted: list[str]) -> SourceListing:
    """Give one client's classes the numbers that they have for all; it may lack some."""
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
    starts = np.cumsum([0, *(len(part.images) for part in parts)])
    joined = Listing(
        JoinedImages(tuple(part.images for part in parts)),
        np.concatenate(labels),
        np.concatenate(fine) if len(fine) == len(parts) else None,
        np.repeat(np.arange(len(parts)), np.diff(starts)),
    )
    return joined.keep(np.concatenate([start + part.used for start, part in zip(starts, parts, strict=False)]))


def _labelled(base: Path, classes: Sequence[str], notes: "_Notes", numbers: Sequence[str] | None = None) -> Listing:
    """List the files of each class, in the order of their names."""
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
    return Listing(image_files(base, paths), labels)


def _folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _holds_images(path: Path) -> bool:
    return any(os.path.splitext(entry.name)[1].lower() in SUFFIXES for entry in os.scandir(path) if entry.is_file())


def _images(path: Path, notes: "_Notes") -> Iterator[str]:
    """Yield the image files in and below a folder, by name; links are followed, but not in circles."""
    seen = set()

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}")

    for root, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        seen.add(os.path.realpath(root))
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and os.path.realpath(os.path.join(root, name)) not in seen
        )
        inside = os.path.relpath(root, path)
        for name in sorted(names):
            if name.startswith("."):
                continue
            if os.path.splitext(name)[1].lower() in SUFFIXES:
                yield name if inside == "." else os.path.join(inside, name)
            else:
                notes.other.append(os.path.join(root, name))


class _Notes:
    """Notes on files and folders that were found beside the images."""

    def __init__(self) -> None:
        self.other: list[str] = []
        self.beside: list[str] = []
        self.flat: list[str] = []

    def lines(self) -> tuple[str, ...]:
        texts = (
            (self.other, "file(s) that are no images by name"),
            (self.beside, "file(s) or folder(s) beside the folders of classes"),
            (self.flat, "folder(s) without labels"),
        )
        return tuple(
            f"left out: {len(found)} {what}: {found[0]}{', ...' if len(found) > 1 else ''}"
            for found, what in texts
            if found
        )

"""Load `[data]` into arrays of one shape: a common size, grey or colour, a test part, and the public set."""

import dataclasses

import numpy as np

from manyheads.config.data import DataConfig, SourceConfig
from manyheads.data.arrays import Dataset, ImageSet
from manyheads.data.frame import Frame, shape_of
from manyheads.data.images import ImageArray
from manyheads.data.listing import TEST_FRACTION, Listing, SourceListing
from manyheads.data.reading import palette_note, read_all
from manyheads.data.sources import list_source
from manyheads.errors import ConfigurationError, DataError
from manyheads.memory import enough_memory

ADVICE = "lower data.size, or pack the images (manyheads pack): packed ones need not fit into memory"


@dataclasses.dataclass(frozen=True, eq=False)
class LoadingPlan:
    """Everything that will be read, and the shape that it will get."""

    found: SourceListing  # with a test part, and the public part for training
    frame: Frame
    public_frame: Frame
    classes: tuple[str, ...]
    set_aside: float | None


def load(config: DataConfig, *, labelled_public: bool = False) -> Dataset:
    """Load the data set that `[data]` describes. `labelled_public`: the public set's own labels are trained on.

    >>> dataset = load(DataConfig(source="digits"))
    >>> len(dataset.train.used), len(dataset.test.used), dataset.image_shape, dataset.classes
    (1437, 360, (8, 8, 1), 10)
    """
    with enough_memory(ADVICE, DataError):
        return _load(config, labelled_public)


def _load(config: DataConfig, labelled_public: bool) -> Dataset:
    plan = loading_plan(config, labelled_public=labelled_public)
    found, palette = plan.found, []
    sets: dict[str, ImageSet] = {}
    for part in ("train", "test", "public"):
        listing: Listing | None = getattr(found, part)
        if listing is not None:
            frame = plan.public_frame if part == "public" else plan.frame
            _refuse_copies(listing, frame)
            if shape_of(listing.images) != frame.shape:
                listing = listing.only_kept()  # what is left out need not be resized
            images, with_palette = read_all(listing.images, frame)
            palette += with_palette
            sets[part] = ImageSet(
                images, listing.labels, listing.fine, listing.owners, listing.kept, listing.stored_names
            )
    return Dataset(
        found.name,
        sets["train"],
        sets["test"],
        plan.classes,
        sets.get("public"),
        len(found.class_names),
        found.client_names,
        plan.set_aside,
        (*found.notes, *palette_note(palette)),
    )


def loading_plan(config: DataConfig, *, labelled_public: bool = False) -> LoadingPlan:
    """Return what there is to read; no pixel is read yet."""
    found = list_source(config)
    set_aside = config.test_fraction
    if found.train.labels is None:
        raise DataError(f"{found.where}: has no labels; they are needed for private data")
    if found.test is None:
        set_aside = TEST_FRACTION if set_aside is None else set_aside
        found = found.with_test(set_aside)
    elif set_aside is not None:
        raise ConfigurationError(f"data.test_fraction: {found.where} has a test part already; leave it out")
    found.check()
    found = _with_small_fine_classes(found)
    frame = frame_of(config, found)
    classes = found.class_names
    if isinstance(config.public, SourceConfig):
        found, classes = _with_public(found, list_source(config.public), labelled_public)
    elif config.public == "own" and found.public is None:
        raise ConfigurationError(f'data.public = "own": {found.where} has no public part of its own')
    elif config.public in ("fraction", "all"):
        found = dataclasses.replace(found, public=None)
    return LoadingPlan(found, frame, dataclasses.replace(frame, any_size=True, any_colour=True), classes, set_aside)


def _with_small_fine_classes(found: SourceListing) -> SourceListing:
    """Number finer classes from 0: they may be words or any numbers."""
    assert found.test is not None
    if found.train.fine is None or found.test.fine is None:
        return found
    kinds = np.unique(np.concatenate([found.train.fine, found.test.fine]))
    train, test = (
        dataclasses.replace(part, fine=np.searchsorted(kinds, np.asarray(part.fine)).astype(np.int64))
        for part in (found.train, found.test)
    )
    return dataclasses.replace(found, train=train, test=test)


def frame_of(config: DataConfig, found: SourceListing) -> Frame:
    """Return the shape of the first image, unless `[data]` asks for another."""
    height, width, channels = shape_of(found.train.images)
    if channels not in (1, 2, 3, 4) and config.channels is not None:
        raise DataError(f"{found.where}: images have {channels} channels, which are no grey or colour ones")
    if channels not in (1, 3) and config.channels is None and config.size is not None:
        raise DataError(
            f"{found.where}: images have {channels} channels, and only grey and colour ones can be resized; "
            "resize them yourself, or give data.channels = 1 or 3"
        )
    if config.size is not None:
        height, width = config.size if isinstance(config.size, list) else (config.size, config.size)
    return Frame(
        height,
        width,
        channels if config.channels is None else config.channels,
        config.fit,
        any_size=config.size is not None,
        any_colour=config.channels is not None,
    )


def _with_public(found: SourceListing, public: SourceListing, labelled: bool) -> tuple[SourceListing, tuple[str, ...]]:
    """Add the public set from elsewhere. Its labels count if its classes are private ones, by name.

    If they are trained on, its own classes are numbered after the private ones.
    """
    own, other, labels = found.class_names, public.class_names, public.train.labels
    classes, number = own, None
    if labels is not None and public.named and found.named and set(other) <= set(own):
        number = np.array([own.index(name) for name in other])
    elif labelled:
        if labels is None:
            raise DataError(f"{public.where}: has no labels, which training on the public set needs")
        number = np.arange(len(own), len(own) + len(other))
        classes = (*own, *(name if public.named and name not in own else f"public {name}" for name in other))
    known = None if labels is None or number is None else number[labels]
    listing = dataclasses.replace(public.train, labels=known, fine=None, owners=None)
    return dataclasses.replace(found, public=listing, notes=(*found.notes, *public.notes)), classes


def _refuse_copies(listing: Listing, frame: Frame) -> None:
    """Refuse to resize packed images in memory: they were packed because they need not fit there."""
    images = listing.images
    if not isinstance(images, ImageArray) or not isinstance(images.array, np.memmap):
        return
    shape = images.array.shape[1:]
    if shape != frame.shape:
        square = frame.height == frame.width
        size = f"--size {frame.height}" if square else f"--set data.size=[{frame.height},{frame.width}]"
        colour = f" --set data.channels={frame.channels}" if shape[2] != frame.channels else ""
        raise DataError(
            f"{images.where}: images are packed as {' x '.join(map(str, shape))}, but {frame.text} is needed; "
            f"pack them again: {size}{colour}"
        )

"""The listing of a source, before any pixel is read: its images, and what is known of each."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.config.messages import nearest
from manyheads.data.arrays import Indices, Labels, Names
from manyheads.data.images import ImageArray, ImageSequence, ImageSubset
from manyheads.errors import ConfigurationError, DataError
from manyheads.printable import printable
from manyheads.seeds import generator

TEST_FRACTION = 0.2  # of a source without a test part


@dataclass(frozen=True, eq=False)
class Listing:
    """The images of one part."""

    images: ImageSequence
    labels: Labels | None
    fine: Labels | None = None
    owners: Indices | None = None
    kept: Indices | None = None  # the others are left out
    stored_names: Names | None = None

    @property
    def used(self) -> Indices:
        return np.arange(len(self.images)) if self.kept is None else self.kept

    def keep(self, numbers: Indices) -> "Listing":
        """Keep only some. Pixels that are in an array stay there: a copy of a mapped one could fill the memory."""
        if isinstance(self.images, ImageArray):
            return dataclasses.replace(self, kept=numbers)
        labels, fine, owners = (None if of is None else of[numbers] for of in (self.labels, self.fine, self.owners))
        return Listing(self.images.select(numbers), labels, fine, owners)

    def only_kept(self) -> "Listing":
        """Drop the samples that are left out, so that they are not read either."""
        if self.kept is None:
            return self
        labels, fine, owners = (None if of is None else of[self.kept] for of in (self.labels, self.fine, self.owners))
        return Listing(ImageSubset(self.images, self.kept), labels, fine, owners)

    def renumbered(self, new_label: Labels) -> "Listing":
        """Renumber the classes; drop all labels if the class of some sample has no new number (-1)."""
        if self.labels is None:
            return self
        labels = new_label[self.labels]
        return dataclasses.replace(self, labels=None if (labels[self.used] < 0).any() else labels)

    def count(self, classes: int) -> NDArray[np.int64]:
        """Count the samples of each class."""
        assert self.labels is not None
        return np.bincount(self.labels[self.used], minlength=classes)


@dataclass(frozen=True, eq=False)
class SourceListing:
    """The listings of all parts of a source, and its names."""

    name: str
    where: str  # for messages, where a person finds it: data.path = "..."
    train: Listing
    test: Listing | None = None
    public: Listing | None = None  # its labels, if known, are those of `class_names`
    class_names: tuple[str, ...] = ()
    named: bool = True  # otherwise names are only numbers, which mean nothing in another source
    client_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make names, which come from folders and files, safe to show, write and compare."""
        for key in ("name", "where"):
            object.__setattr__(self, key, printable(getattr(self, key)))
        for key in ("class_names", "client_names", "notes"):
            object.__setattr__(self, key, tuple(map(printable, getattr(self, key))))

    def check_labels(self) -> None:
        """Raise unless each label is the number of a class, whatever a source read it from."""
        for name, part in (("train", self.train), ("test", self.test), ("public", self.public)):
            if part is None or part.labels is None or len(part.used) == 0:
                continue
            low, high = part.labels[part.used].min(), part.labels[part.used].max()
            if low < 0 or high >= len(self.class_names):
                raise DataError(
                    f"{self.where}: labels of the {name} part go from {low} to {high}, but there are only "
                    f"{len(self.class_names)} classes; they count from 0"
                )

    def only(self, wanted: Sequence[str] | Sequence[int]) -> "SourceListing":
        """Keep these classes only, numbered in this order."""
        old = [self._class(name) for name in wanted]
        names = tuple(self.class_names[label] for label in old)
        new_label = np.full(len(self.class_names), -1)
        new_label[old] = np.arange(len(old))

        def subset(part: Listing) -> Listing:
            assert part.labels is not None
            labels = new_label[part.labels]
            return dataclasses.replace(part, labels=labels).keep(part.used[labels[part.used] >= 0])

        test = None if self.test is None else subset(self.test)
        public = None if self.public is None else self.public.renumbered(new_label)
        return dataclasses.replace(self, train=subset(self.train), test=test, public=public, class_names=names)

    def _class(self, wanted: str | int) -> int:
        names = self.class_names
        if isinstance(wanted, str) and wanted in names:
            return names.index(wanted)
        if isinstance(wanted, int) and 0 <= wanted < len(names):
            return wanted
        hint = nearest(wanted, names) if isinstance(wanted, str) else f"numbers are 0 to {len(names) - 1}"
        raise ConfigurationError(f"classes: {self.where} has no class {wanted}; {hint}")

    def with_test(self, fraction: float) -> "SourceListing":
        """Set a test part aside: the same share of every class of every client, the same for every seed."""
        labels, used, rng = self.train.labels, self.train.used, generator(0, "test part")
        assert labels is not None
        kind = labels if self.train.owners is None else labels + len(self.class_names) * self.train.owners
        together = used[np.argsort(kind[used], kind="stable")]
        _, starts = np.unique(kind[together], return_index=True)
        shuffled = [rng.permutation(members) for members in np.split(together, starts[1:])]
        test = np.sort(np.concatenate([members[: round(fraction * len(members))] for members in shuffled]))
        if len(test) == 0:
            raise DataError(f"{self.where}: no sample is left for the test part; raise data.test_fraction")
        if self.train.owners is not None:
            owners = self.train.owners
            for client in np.setdiff1d(owners[used], owners[test]):
                raise DataError(
                    f"{self.where}: client {self.client_names[client]} has too few samples of each class for a test "
                    "part; raise data.test_fraction or leave it out"
                )
        train = np.setdiff1d(used, test)
        return dataclasses.replace(self, train=self.train.keep(train), test=self.train.keep(test))

    def check(self) -> None:
        """Raise unless it has what a private task needs."""
        assert self.test is not None
        classes = len(self.class_names)
        trained, tested = self.train.count(classes), self.test.count(classes)
        if (trained > 0).sum() < 2:
            raise DataError(
                f"{self.where}: training samples of {(trained > 0).sum()} class only; needed: two or more classes"
            )
        if tested.sum() == 0:
            raise DataError(f"{self.where}: the test part holds no samples")
        unknown = [self.class_names[label] for label in np.flatnonzero((trained == 0) & (tested > 0))]
        if unknown:
            raise DataError(
                f"{self.where}: the test part has class {_few(unknown)}, of which there is no training sample; "
                "leave it out (data.classes) or add some"
            )
        gaps = [self.class_names[label] for label in np.flatnonzero(trained == 0)]
        if gaps and not self.named:
            raise DataError(
                f"{self.where}: labels go up to {classes - 1}, but there is no sample of class {_few(gaps)}; "
                f"labels must be 0 to {classes - 1 - len(gaps)} without gaps, or name all classes (class_names)"
            )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

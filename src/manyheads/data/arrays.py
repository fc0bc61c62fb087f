"""A data set as plain arrays, in memory or mapped from files."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]  # samples x height x width x channels
Labels = NDArray[np.int64]
Indices = NDArray[np.int64]
Names = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, with the labels and names that are known of each.

    >>> images = ImageSet(np.zeros((3, 8, 8, 1), dtype=np.uint8), labels=np.array([0, 1, 1]), kept=np.array([0, 2]))
    >>> images.known_labels[images.used]
    array([0, 1])
    """

    images: Images
    labels: Labels | None
    fine: Labels | None = None  # finer classes, if the labels to learn are coarse
    owners: Indices | None = None  # the client that brought each
    kept: Indices | None = None  # the others are left out, though their pixels are here (`data.classes`, a test part)
    stored_names: Names | None = None  # if they were computed before: hashing reads every pixel

    @cached_property
    def used(self) -> Indices:
        """The positions of the samples that are not left out."""
        return np.arange(len(self.images)) if self.kept is None else self.kept

    @cached_property
    def names(self) -> Names:
        return content_hashes(self.images) if self.stored_names is None else self.stored_names

    @property
    def known_labels(self) -> Labels:
        """The labels of a set that must have some."""
        assert self.labels is not None, "an unlabelled set"
        return self.labels

    @property
    def finest(self) -> Labels:
        """The finest known class of each sample."""
        return self.known_labels if self.fine is None else self.fine


@dataclass(frozen=True, eq=False)
class Dataset:
    """The training and test samples of a task, and public ones if they come from elsewhere."""

    name: str
    train: ImageSet
    test: ImageSet
    class_names: tuple[str, ...]
    public: ImageSet | None = None
    own_classes: int | None = None  # the first so many are the private task's, the rest the public set's
    client_names: tuple[str, ...] = ()  # if clients brought their own data
    set_aside: float | None = None  # the share of the training samples that became the test part
    notes: tuple[str, ...] = ()  # what a person should know about the files

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def private_classes(self) -> int:
        return self.classes if self.own_classes is None else self.own_classes

    @property
    def public_set(self) -> ImageSet:
        """The set that holds the public samples."""
        return self.train if self.public is None else self.public

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.train.images.shape[1:]
        return height, width, channels

    def fingerprint(self) -> str:
        """Return a hash of every sample and label: a run is resumed only on the data that it was started on."""
        digest = hashlib.sha256()
        for part in (self.train, self.test, self.public):
            for array in () if part is None else (part.names, part.labels, part.fine, part.owners, part.kept):
                digest.update(b"none" if array is None else f"{array.dtype}{array.shape}".encode())
                digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        return digest.hexdigest()


def content_hashes(images: Images) -> Names:
    """Return a name for each image, a hash of its pixels: two sites that hold the same image agree on it."""
    shape = str(images.shape[1:]).encode()
    names = [hashlib.blake2b(image.tobytes(), digest_size=8, key=shape).digest() for image in images]
    return np.frombuffer(b"".join(names), dtype="<u8")

"""The contract of sources: arrays of one shape that repeat, can be packed, choose classes, train, and can be public.

A source is tested here by being in SOURCES; it also needs somebody who makes data for it, below.
"""

import csv
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyheads import Experiment, train
from manyheads.config.data import DataConfig
from manyheads.data.arrays import Dataset
from manyheads.data.loading import load
from manyheads.data.pack import pack
from manyheads.data.sources import SOURCES
from manyheads.data.sources.numpy_arrays import digits_table
from manyheads.runs.summary import Summary
from tests.conftest import TINY
from tests.data.made import (
    HEIGHT,
    WIDTH,
    check_line,
    class_folders,
    classes_by_brightness,
    data,
    datasets_below,
    picture,
    pixels,
    refusal,
    same,
    torchvision_or_skip,
    used,
)

NAMES = ("cat", "dog", "owl")
TRAIN, TEST = np.arange(24) % 3, np.arange(9) % 3  # labels


@dataclass(frozen=True)
class Made:
    """Small data of a source."""

    keys: dict[str, Any]  # of [data]
    change: Callable[[], None]  # of one pixel
    class_names: tuple[str, ...] = NAMES
    shape: tuple[int, int, int] = (HEIGHT, WIDTH, 3)
    clients: int = 3
    bright: bool = True  # as bright as its class

    def config(self, **more: Any) -> DataConfig:
        return data(**self.keys, **more)


Maker = Callable[[Path, pytest.MonkeyPatch], Made]


def digits(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    changed = digits_table()
    changed[3, 0] = 16.0 - changed[3, 0]

    def change() -> None:
        monkeypatch.setattr("manyheads.data.sources.numpy_arrays.digits_table", lambda: changed)

    return Made({"source": "digits"}, change, tuple("0123456789"), (8, 8, 1), bright=False)


def write_npz(path: Path, change: int = 0) -> None:
    images = pixels(TRAIN)
    images[5, 2, 3, 1] += change
    arrays = {"x_train": images, "y_train": TRAIN, "x_test": pixels(TEST, seed=1), "y_test": TEST}
    np.savez(path, **arrays, class_names=np.array(NAMES))  # type: ignore[arg-type]


def npz(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    file = path / "small.npz"
    write_npz(file)
    return Made({"source": "npz", "path": file}, lambda: write_npz(file, change=1))


def change_picture(file: Path) -> None:
    picture(0, seed=77).save(file)


def folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Write class folders with PNG and JPEG files side by side."""
    root = path / "pictures"
    for part, count in (("train", 4), ("test", 2)):
        class_folders(root / part, dict.fromkeys(NAMES, count), seed=len(part))
        for name in NAMES:
            picture(NAMES.index(name), seed=9).save(root / part / name / "last.jpg", quality=95)
    return Made({"source": "folder", "path": root}, lambda: change_picture(root / "train" / "cat" / "0.png"))


def clients(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Write one client as a folder and one as a file, with public images beside them."""
    root = path / "sites"
    class_folders(root / "north" / "train", dict.fromkeys(NAMES, 5))
    class_folders(root / "north" / "test", dict.fromkeys(NAMES, 2), seed=1)
    write_npz(root / "south.npz")
    class_folders(root / "public", dict.fromkeys(NAMES, 4), seed=2)
    file = root / "north" / "train" / "cat" / "0.png"
    return Made({"source": "clients", "path": root}, lambda: change_picture(file), clients=2)


def packed(path: Path, monkeypatch: pytest.MonkeyPatch, of: Maker = folder) -> Made:
    """Write images and pack them; names are stored, so a changed image is packed again."""
    made, place = of(path, monkeypatch), path / "packed"
    pack(made.config(), place, workers=1)

    def change() -> None:
        made.change()
        shutil.rmtree(place)
        pack(made.config(), place, workers=1)

    return Made({"source": "packed", "path": place}, change, clients=made.clients)


def hugging(change: int = 0) -> Any:
    """Return the splits of a data set as the library `datasets` holds them."""
    import datasets

    images = pixels(TRAIN)
    images[5, 2, 3, 1] += change
    label = datasets.ClassLabel(names=list(NAMES))
    kinds = datasets.Features({"picture": datasets.Image(), "animal": label})
    made = {
        split: datasets.Dataset.from_dict({"picture": list(of), "animal": labels.tolist()}, features=kinds)
        for split, of, labels in (("train", images, TRAIN), ("test", pixels(TEST, seed=1), TEST))
    }
    return datasets.DatasetDict(made)


def save_hugging(root: Path, change: int = 0) -> None:
    shutil.rmtree(root, ignore_errors=True)
    hugging(change).save_to_disk(str(root))


def hugging_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    datasets_below(path, monkeypatch)
    root = path / "saved"
    save_hugging(root)
    return Made({"source": "huggingface", "path": root}, lambda: save_hugging(root, change=1))


def save_parquet(root: Path, change: int = 0) -> None:
    for split, rows in hugging(change).items():
        rows.to_parquet(str(root / f"{split}-00000-of-00001.parquet"))


def hugging_parquet(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    datasets_below(path, monkeypatch)
    root = path / "parquet"
    root.mkdir()
    save_parquet(root)
    return Made({"source": "huggingface", "path": root}, lambda: save_parquet(root, change=1))


def write_idx(file: Path, array: Any) -> None:
    """Write MNIST's format: a magic number with the number of dimensions, their sizes, the bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    file.write_bytes((0x0800 + array.ndim).to_bytes(4, "big") + sizes + array.astype(np.uint8).tobytes())


def torchvision_mnist(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Write grey arrays."""
    names = tuple(torchvision_or_skip().MNIST.classes)
    raw = path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, samples in (("train", 60), ("t10k", 20)):
        labels = np.arange(samples) % 10
        write_idx(raw / f"{part}-images-idx3-ubyte", pixels(labels, channels=1)[..., 0])
        write_idx(raw / f"{part}-labels-idx1-ubyte", labels)
    file = raw / "train-images-idx3-ubyte"

    def change() -> None:
        content = bytearray(file.read_bytes())
        content[100] ^= 1
        file.write_bytes(content)

    return Made({"source": "torchvision", "name": "MNIST", "path": path}, change, names, (HEIGHT, WIDTH, 1))


def torchvision_cifar(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Write colour arrays, channels first; checksums are those of the true CIFAR10, so they are not compared."""
    cifar10 = torchvision_or_skip().CIFAR10
    monkeypatch.setattr(cifar10, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    root, names = path / "cifar-10-batches-py", tuple(f"thing {number}" for number in range(10))
    root.mkdir()

    def write(name: str, **content: object) -> None:
        (root / name).write_bytes(pickle.dumps(content))

    def batch(name: str, samples: int, seed: int) -> None:
        labels = np.arange(samples) % 10
        images = np.resize(pixels(labels, seed=seed), (samples, 32, 32, 3))
        images = (images % 20 + 20 * labels[:, None, None, None]).astype(np.uint8)
        write(name, data=images.transpose(0, 3, 1, 2).reshape(samples, -1), labels=labels.tolist())

    for number in range(1, 6):
        batch(f"data_batch_{number}", 10, seed=number)
    batch("test_batch", 20, seed=6)
    write("batches.meta", label_names=list(names))
    keys = {"source": "torchvision", "name": "CIFAR10", "path": path}
    return Made(keys, lambda: batch("data_batch_3", 10, seed=7), names, (32, 32, 3))


def torchvision_stl10(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Write colour arrays that stay channels first; the file holds images column by column, and labels from 1."""
    monkeypatch.setattr(torchvision_or_skip().STL10, "_check_integrity", lambda self: True)
    root = path / "stl10_binary"
    root.mkdir()

    def write(part: str, labels: Any, seed: int) -> None:
        images = pixels(labels, seed=seed).repeat(8, axis=1).repeat(10, axis=2)[:, :, :96]
        (root / f"{part}_X.bin").write_bytes(images.transpose(0, 3, 2, 1).tobytes())
        (root / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())

    write("train", TRAIN, seed=1)
    write("test", TEST, seed=2)
    (root / "class_names.txt").write_text("\n".join(NAMES))
    keys = {"source": "torchvision", "name": "STL10", "path": path}
    return Made(keys, lambda: write("train", TRAIN, seed=3), shape=(96, 96, 3))


def torchvision_gtsrb(path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Write images that are decoded one by one, without names of classes."""
    torchvision_or_skip()
    base = path / "gtsrb"
    class_folders(base / "GTSRB" / "Training", {f"{label:05}": 8 for label in range(3)}, suffix=".ppm")
    test = base / "GTSRB" / "Final_Test" / "Images"
    test.mkdir(parents=True)
    with (base / "GT-final_test.csv").open("w") as stream:
        table = csv.DictWriter(stream, ["Filename", "ClassId"], delimiter=";")
        table.writeheader()
        for number, label in enumerate(TEST):
            picture(int(label), seed=100 + number).save(test / f"{number}.ppm")
            table.writerow({"Filename": f"{number}.ppm", "ClassId": label})
    file = base / "GTSRB" / "Training" / "00000" / "0.ppm"
    keys = {"source": "torchvision", "name": "GTSRB", "path": path}
    return Made(keys, lambda: change_picture(file), ("0", "1", "2"))


MAKERS: dict[str, Maker] = {  # the first word is the source
    "digits": digits,
    "npz": npz,
    "folder": folder,
    "clients": clients,
    "torchvision MNIST": torchvision_mnist,
    "torchvision CIFAR10": torchvision_cifar,
    "torchvision STL10": torchvision_stl10,
    "torchvision GTSRB": torchvision_gtsrb,
    "huggingface disk": hugging_disk,
    "huggingface parquet": hugging_parquet,
    "packed": packed,
    "packed clients": partial(packed, of=clients),
}


@pytest.fixture(params=MAKERS)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return MAKERS[request.param](tmp_path, monkeypatch)


def is_packed(made: Made) -> bool:
    return bool(made.keys["source"] == "packed")


def labels_by_brightness(dataset: Dataset, made: Made) -> None:
    """Check that each image is as bright as its class says: labels and images belong together."""
    for part in (dataset.train, dataset.test):
        images, labels = used(part)
        assert classes_by_brightness(images) == [made.class_names.index(dataset.class_names[label]) for label in labels]


def test_every_source_is_tested_here() -> None:
    missing = set(SOURCES) - {name.split()[0] for name in MAKERS}
    assert not missing, f"give {', '.join(missing)} somebody who makes data for it: MAKERS in {__file__}"


def test_arrays_of_one_shape_with_labels_from_0(made: Made) -> None:
    dataset = load(made.config())
    assert dataset.class_names == made.class_names
    assert dataset.image_shape == made.shape
    assert dataset.classes == dataset.private_classes == len(made.class_names)
    for part in (dataset.train, dataset.test, dataset.public_set):
        labels = part.known_labels[part.used]
        assert part.images.dtype == np.uint8
        assert part.images.ndim == 4
        assert part.images.shape[1:] == dataset.image_shape
        assert labels.dtype == np.int64
        assert sorted(set(labels.tolist())) == list(range(dataset.classes))
        assert len(part.names) == len(part.images) == len(part.known_labels) >= len(labels) > 0
    if made.bright:
        labels_by_brightness(dataset, made)


def test_the_same_twice_until_a_pixel_changes(made: Made) -> None:
    first, again = load(made.config()), load(made.config())
    assert first.fingerprint() == again.fingerprint()
    same(first, again)
    made.change()
    changed = load(made.config())
    assert changed.fingerprint() != first.fingerprint()
    assert [len(changed.train.used), len(changed.test.used)] == [len(first.train.used), len(first.test.used)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [6, [16, 9]])
def test_size_and_channels_are_given_exactly(made: Made, size: int | list[int], channels: int) -> None:
    config = made.config(size=size, channels=channels)
    shape = (*(size if isinstance(size, list) else (size, size)), channels)
    if is_packed(made):  # it need not fit into memory, so nothing of it is made anew there
        return check_line(refusal(config), made.keys["path"], "10 x 3", " x ".join(map(str, shape)), "pack them again")
    dataset = load(config)
    for part in (dataset.train, dataset.test, dataset.public_set):
        assert part.images.shape == (len(part.images), *shape)
    if made.bright:
        labels_by_brightness(dataset, made)
    return None


def test_packed_says_which_size_and_channels_to_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that the message names is the one that is needed."""
    made = packed(tmp_path, monkeypatch)
    check_line(refusal(made.config(size=16)), "--size 16")
    check_line(refusal(made.config(channels=1)), "data.channels=1")
    check_line(refusal(made.config(size=[16, 9])), "data.size=[16,9]")


@pytest.mark.parametrize("by", ["name", "number"])
def test_chosen_classes_are_numbered_as_they_are_given(made: Made, by: str) -> None:
    """A choice of classes gives the same images, without those of other classes."""
    numbers = [2, 0]
    names = tuple(made.class_names[number] for number in numbers)
    whole = load(made.config())
    chosen = load(made.config(classes=list(names) if by == "name" else numbers))
    assert chosen.class_names == names
    assert chosen.private_classes == 2
    for mine, every in ((chosen.train, whole.train), (chosen.test, whole.test)):
        images, labels = used(mine)
        all_images, all_labels = used(every)
        kept = np.isin(all_labels, numbers)
        assert np.array_equal(images, all_images[kept])
        assert labels == [numbers.index(label) for label in np.array(all_labels)[kept]]


def test_labels_of_a_public_part_follow_the_chosen_classes(made: Made) -> None:
    """Labels of a public part that a source brings are numbers of the private classes, or unknown."""
    dataset = load(made.config(classes=[made.class_names[2], made.class_names[0]]))
    if dataset.public is not None and dataset.public.labels is not None:
        images, labels = used(dataset.public)
        assert classes_by_brightness(images) == [{0: 2, 1: 0}.get(label) for label in labels]


def test_packing_keeps_every_pixel_label_and_name(made: Made, tmp_path: Path) -> None:
    more = {} if is_packed(made) else {"size": 16}
    direct = load(made.config(**more))
    card = pack(made.config(**more), tmp_path / "into", workers=2)
    again = load(data(source="packed", path=tmp_path / "into"))
    same(direct, again)
    assert again.name == direct.name
    assert card["unreadable"] == []
    assert isinstance(again.train.images, np.memmap)
    assert again.image_shape == (made.shape if is_packed(made) else (16, 16, made.shape[2]))


def trained(made: Made, **more: Any) -> Summary:
    experiment = Experiment(
        clients=made.clients,
        data={**made.keys, "path": str(made.keys.get("path", "")) or None, "public_fraction": 0.3, "skew": 1.0, **more},
        model=TINY["model"],
        algorithm=TINY["algorithm"],
        training={"steps": 6, "batch_size": 4, "public_batch_size": 4, "warmup_steps": 1, "log_every": 3},
        evaluate={"every": 6},
    )
    return train(experiment).summary


def test_it_trains(made: Made) -> None:
    summary = trained(made, augment="resized-crop-flip")
    assert len(summary["clients"]) == made.clients
    assert all(received > 0 for received in summary["bytes_received"])
    assert summary["classes"] == list(made.class_names)
    assert summary["taught"]["own_right"] is not None


def test_it_serves_as_a_public_set(made: Made, tmp_path: Path) -> None:
    """Public images from elsewhere become grey, of 8 x 8 pixels, like the digits."""
    keys = {**made.keys}
    if is_packed(made):  # in the shape that is needed
        pack(made.config(size=8, channels=1), tmp_path / "grey", workers=1)
        keys["path"] = tmp_path / "grey"
    public = {key: str(value) for key, value in keys.items()}
    config = data(source="digits", public=public)
    dataset, alone = load(config), load(data(source="digits"))
    assert dataset.public is not None
    assert dataset.public.images.shape[1:] == dataset.image_shape == (8, 8, 1)
    if made.bright:
        elsewhere = load(made.config())
        assert classes_by_brightness(dataset.public.images) == classes_by_brightness(used(elsewhere.train)[0])
    assert (dataset.public.labels is None) == (made.class_names != dataset.class_names)
    assert dataset.class_names == alone.class_names
    assert np.array_equal(dataset.train.images, alone.train.images)
    summary = trained(Made({"source": "digits"}, made.change), public=public)
    assert (summary["taught"]["own_right"] is None) == (dataset.public.labels is None)


def test_a_packed_public_set_of_another_shape_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the public folder, which has to be packed again."""
    made = packed(tmp_path, monkeypatch)
    line = refusal(data(source="digits", public={"source": "packed", "path": str(made.keys["path"])}))
    check_line(line, made.keys["path"], "12 x 10 x 3", "8 x 8 x 1", "pack them again")

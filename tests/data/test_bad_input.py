"""Whatever is wrong with files, folders and keys ends in one line that names it and says what to change.

What is merely unusual is converted, and a note says so where a person should know.
"""

import errno
import json
import logging
import os
import shutil
import socket
import struct
import sys
import zlib
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from manyheads import ConfigurationError, DataError, Experiment
from manyheads.data.batches import Pixels
from manyheads.data.journal import JOURNAL
from manyheads.data.loading import load
from manyheads.data.pack import pack
from manyheads.data.sources.packed_folder import mapped
from manyheads.setup.resolve import resolve
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


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Write two classes of five colour images, without a test part."""
    return class_folders(tmp_path / "pets", {"cat": 5, "dog": 5})


def refused_folder(path: Path, **keys: Any) -> str:
    return refusal(data(source="folder", path=path, **keys))


def write_npz(path: Path, **changes: Any) -> Path:
    """Write thirty training and six test images of three classes, with some arrays replaced or left out."""
    labels = {"y_train": np.arange(30) % 3, "y_test": np.arange(6) % 3}
    arrays = {"x_train": pixels(labels["y_train"]), "x_test": pixels(labels["y_test"], seed=1), **labels, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


# Folders of images


def test_a_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_line(refused_folder(tmp_path / "none"), tmp_path / "none", "No such file")
    (tmp_path / "file").write_text("")
    check_line(refused_folder(tmp_path / "file"), tmp_path / "file", "is not a folder")
    monkeypatch.chdir(tmp_path)
    check_line(refused_folder(Path("none")), f"relative paths count from {tmp_path}")
    check_line(refusal(data(source="folder")), "data.path: missing")


def test_a_missing_public_folder(tmp_path: Path) -> None:
    """The message names the key that is wrong, which is not `data.path`."""
    check_line(refusal(data(source="digits", public={"source": "folder", "path": "none"})), 'data.public.path = "none"')
    check_line(refusal(data(source="digits", public={"source": "folder"})), "data.public.path: missing")


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    check_line(refused_folder(tmp_path / "bare"), tmp_path / "bare", "neither images nor sub-folders of images")
    (tmp_path / "bare" / "notes.txt").write_text("no image")
    check_line(refused_folder(tmp_path / "bare"), "neither images nor sub-folders of images")


def test_an_empty_class_folder(pets: Path) -> None:
    (pets / "cow").mkdir()
    check_line(refused_folder(pets), pets / "cow", "holds no images; add some or remove the empty class")
    (pets / "cow" / "notes.txt").write_text("no image")
    check_line(refused_folder(pets), pets / "cow", "holds no images")


def test_an_empty_class_folder_of_the_test_part(pets: Path) -> None:
    class_folders(pets / "test", {"cat": 2})
    (pets / "test" / "dog").mkdir()
    check_line(refused_folder(pets), pets / "test" / "dog", "holds no images")


def test_images_without_classes_cannot_be_private_data(pets: Path) -> None:
    check_line(refused_folder(pets / "cat"), pets / "cat", "has no labels; they are needed for private data")


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    check_line(refused_folder(class_folders(tmp_path / "one", {"cat": 10})), tmp_path / "one", "two or more classes")


def test_a_class_that_only_the_test_part_has(pets: Path) -> None:
    class_folders(pets / "test", {"cat": 2, "cow": 2})
    check_line(refused_folder(pets), pets / "test" / "cow", "the training part has no class cow")
    shutil.rmtree(pets / "test" / "cow")
    assert load(data(source="folder", path=pets)).class_names == ("cat", "dog")  # fewer classes are no mistake


def test_a_class_called_train(pets: Path) -> None:
    """A hint says that `train` is taken for the training part: it holds images, but no sub-folders."""
    class_folders(pets, {"train": 3})
    check_line(refused_folder(pets), pets / "train", "holds no sub-folders")


def test_a_public_folder_beside_the_classes_is_not_lost(pets: Path) -> None:
    """`public/` is the public part, as beside clients."""
    class_folders(pets / "public", {"cat": 2, "dog": 2})
    dataset = load(data(source="folder", path=pets))
    assert dataset.public is not None
    assert len(dataset.public.used) == 4


def test_folders_of_organisations_are_not_classes(tmp_path: Path) -> None:
    for name in ("berlin", "paris"):
        class_folders(tmp_path / "sites" / name / "train", {"cat": 3, "dog": 3})
    check_line(refused_folder(tmp_path / "sites"), "berlin, paris", "all hold train/", 'source = "clients"')


def test_parts_in_any_case_and_by_their_long_names(tmp_path: Path) -> None:
    class_folders(tmp_path / "a" / "Train", {"cat": 4, "dog": 4})
    class_folders(tmp_path / "a" / "Validation", {"cat": 2, "dog": 2})
    dataset = load(data(source="folder", path=tmp_path / "a"))
    assert (dataset.class_names, len(dataset.train.used), len(dataset.test.used)) == (("cat", "dog"), 8, 4)


def test_a_test_part_without_labels_gives_way_to_val(tmp_path: Path) -> None:
    """ImageNet has such folders."""
    class_folders(tmp_path / "a" / "train", {"cat": 4, "dog": 4})
    class_folders(tmp_path / "a" / "val", {"cat": 2, "dog": 2})
    (tmp_path / "a" / "test").mkdir()
    picture().save(tmp_path / "a" / "test" / "0.png")
    (tmp_path / "a" / "more").mkdir()
    dataset = load(data(source="folder", path=tmp_path / "a"))
    assert len(dataset.test.used) == 4
    check_line(" ".join(dataset.notes), tmp_path / "a" / "test", tmp_path / "a" / "more", "without labels")


def test_linked_folders_are_read_once_and_not_in_circles(pets: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    picture(0, seed=9).save(tmp_path / "elsewhere" / "0.png")
    (pets / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "again").symlink_to(pets / "cat")
    dataset = load(data(source="folder", path=pets))
    assert len(dataset.train.images) + len(dataset.test.images) == 11


def test_images_beside_the_classes_are_not_lost(pets: Path) -> None:
    """A note names the first one."""
    picture().save(pets / "stray.png")
    check_line(" ".join(load(data(source="folder", path=pets)).notes), pets / "stray.png")


def test_files_that_are_not_images_are_noted(pets: Path) -> None:
    (pets / "cat" / "readme.txt").write_text("cats")
    (pets / "cat" / ".hidden.png").write_bytes(b"")
    dataset = load(data(source="folder", path=pets))
    assert dataset.notes == (f"left out: 1 file(s) that are no images by name: {pets / 'cat' / 'readme.txt'}",)
    (pets / "dog" / "Thumbs.db").write_bytes(b"")
    assert (
        load(data(source="folder", path=pets)).notes[0].startswith("left out: 2 file(s) that are no images by name: ")
    )
    assert len(dataset.train.used) + len(dataset.test.used) == 10


def test_a_folder_that_is_called_like_an_image(pets: Path) -> None:
    """A folder counts, whatever its name ends in."""
    (pets / "cat" / "more.png").mkdir()
    assert len(load(data(source="folder", path=pets)).train.images) == 8
    picture(0, seed=9).save(pets / "cat" / "more.png" / "0.png")
    dataset = load(data(source="folder", path=pets))
    assert len(dataset.train.images) + len(dataset.test.images) == 11


# Single images


def damage(file: Path) -> Path:
    """An image is cut off in the middle, as by an interrupted download."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    return file


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_truncated_image_is_named(pets: Path, suffix: str) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    image.save(pets / "dog" / f"broken{suffix}")
    broken = damage(pets / "dog" / f"broken{suffix}")
    check_line(refused_folder(pets), broken, "cannot be decoded", "repair or remove it", "manyheads pack")


def test_an_empty_image_file_is_named(pets: Path) -> None:
    (pets / "dog" / "empty.png").write_bytes(b"")
    check_line(refused_folder(pets), pets / "dog" / "empty.png", "is empty")


def test_an_image_that_only_its_name_calls_one(pets: Path) -> None:
    (pets / "dog" / "text.png").write_text("I am a text\nof two lines")
    check_line(refused_folder(pets), pets / "dog" / "text.png", "is not an image")


def test_a_link_to_nothing(pets: Path) -> None:
    (pets / "dog" / "link.png").symlink_to(pets / "nowhere.png")
    check_line(refused_folder(pets), pets / "dog" / "link.png", "is gone")


def test_a_file_that_may_not_be_read(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = pets / "dog" / "0.png"
    locked.chmod(0)
    if os.geteuid() == 0:  # who may read every file: refused as anybody else would be
        opened = os.open

        def refuse(file: Any, *args: Any, **options: Any) -> int:
            if file == locked:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
            return opened(file, *args, **options)

        monkeypatch.setattr(os, "open", refuse)
    check_line(refused_folder(pets), locked, "Permission denied")


def save_deep(file: Path, channels: int) -> Path:
    """Return a PNG file of 16 bits a channel, which Pillow reads but does not write in colour."""
    rows = b"".join(b"\0" + b"\x12\x34" * (WIDTH * channels) for _ in range(HEIGHT))

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, {1: 0, 3: 2}[channels], 0, 0, 0)
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return file


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_a_channel_are_refused(pets: Path, channels: int) -> None:
    """Colour images are refused, too: Pillow would silently drop the lower eight bits."""
    deep = save_deep(pets / "dog" / "deep.png", channels)
    check_line(refused_folder(pets), deep, "has 16 or more bits a channel", "needed: 8, so scale it to 0 ... 255")


@pytest.mark.parametrize("channels", [1, 3])
def test_only_deep_images(tmp_path: Path, channels: int) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            save_deep(tmp_path / name / f"{number}.png", channels)
    check_line(refused_folder(tmp_path), tmp_path / "cat" / "0.png", "16 or more bits")


def test_16_bits_a_pixel_are_not_16_bits_a_channel(pets: Path) -> None:
    """A BMP file of 5, 6 and 5 bits is an ordinary image."""
    rows = struct.pack("<H", 0b01111_011111_01111) * (WIDTH * HEIGHT)
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, 16, 3, len(rows), 0, 0, 0, 0) + masks
    start = 14 + len(header)
    content = struct.pack("<2sIHHI", b"BM", start + len(rows), 0, 0, start) + header + rows
    (pets / "cat" / "0.png").unlink()
    (pets / "cat" / "0.bmp").write_bytes(content)
    dataset = load(data(source="folder", path=pets))
    assert len(dataset.train.used) + len(dataset.test.used) == 10


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "CMYK", "1", "L"])
def test_other_modes_are_converted(pets: Path, mode: str) -> None:
    """Pillow's `convert` does it; a note is left about palettes only, whose pixels are not brightness."""
    file = pets / "cat" / ("0.tif" if mode == "CMYK" else "0.png")
    (pets / "cat" / "0.png").unlink()
    picture(3, mode=mode).save(file)
    for channels, plain in ((1, "L"), (3, "RGB")):
        dataset = load(data(source="folder", path=pets, channels=channels))
        with Image.open(file) as image:
            expected = np.asarray(image.convert(plain)).reshape(HEIGHT, WIDTH, channels)
        every = np.concatenate([dataset.train.images, dataset.test.images])
        assert any(np.array_equal(image, expected) for image in every)
        note = f"1 palette image(s) turned into plain ones, the first {file}"
        assert dataset.notes == ((note,) if mode == "P" else ())


def test_transparent_palettes(pets: Path) -> None:
    image = picture(3, mode="P")
    image.save(pets / "cat" / "0.png", transparency=0)
    image.save(pets / "cat" / "1.png", transparency=bytes(range(256)))
    dataset = load(data(source="folder", path=pets))
    assert dataset.notes[0].startswith("2 palette image(s)")
    assert sorted(classes_by_brightness(np.concatenate([dataset.train.images, dataset.test.images]))) == [
        0,
        0,
        0,
        1,
        1,
        1,
        1,
        1,
        3,
        3,
    ]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_mode_that_cannot_be_converted_is_unreadable(pets: Path, channels: int) -> None:
    """It ends in one line, not in Pillow's traceback."""
    Image.new("LAB", (WIDTH, HEIGHT)).save(pets / "cat" / "lab.tif")
    config = data(source="folder", path=pets, channels=channels)
    if channels == 3:  # that it can
        assert len(load(config).train.images) == 9
    else:
        check_line(refusal(config), pets / "cat" / "lab.tif", "LAB")


def test_an_image_is_shown_upright(tmp_path: Path) -> None:
    """A camera that was held on its side says so in the file: the turned first image decides the size."""
    upright = picture(2, seed=5)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            upright.rotate(90, expand=True).save(tmp_path / name / f"{number}.png", exif=exif)
    dataset = load(data(source="folder", path=tmp_path))
    assert dataset.image_shape == (HEIGHT, WIDTH, 3)
    assert all(np.array_equal(image, np.asarray(upright)) for image in dataset.train.images)


def test_jpegs_are_upright_too_when_they_are_made_smaller(tmp_path: Path) -> None:
    """The decoder itself makes them smaller, before they are turned."""
    wide = np.zeros((64, 256, 3), dtype=np.uint8)
    wide[:, :128] = 200  # bright on the left; turned clockwise, on top
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.fromarray(wide).save(tmp_path / name / f"{number}.jpg", exif=exif)
    dataset = load(data(source="folder", path=tmp_path, size=16))
    for image in dataset.train.images:
        assert image[:7].min() > 190
        assert image[9:].max() < 10


def test_damaged_notes_of_a_camera_do_not_matter(pets: Path) -> None:
    """Pillow warns about them, but the pixels are whole, so nothing is said."""
    (pets / "cat" / "0.png").unlink()
    picture(3).save(pets / "cat" / "0.jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01")
    dataset = load(data(source="folder", path=pets))
    assert 3 in classes_by_brightness(np.concatenate([dataset.train.images, dataset.test.images]))


@pytest.mark.parametrize("size", [16, [16, 4], [4, 16]])
def test_a_decoder_does_not_make_them_smaller_than_they_are_needed(tmp_path: Path, size: int | list[int]) -> None:
    """Every field of a chess board of 16 x 16 fields still differs from the next, along the longer side."""
    board = 255 * (np.indices((16, 16)).sum(0) % 2).astype(np.uint8)
    stripes = 255 * np.repeat(np.arange(16)[:, None] % 2, 16, axis=1).astype(np.uint8)
    fields = {16: board, 4: stripes}[min(size) if isinstance(size, list) else size]
    fields = fields.T if size == [4, 16] else fields
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.fromarray(fields.repeat(4, 0).repeat(4, 1)).save(tmp_path / name / f"{number}.jpg", quality=95)
    image = load(data(source="folder", path=tmp_path, size=size)).train.images[0, ..., 0].astype(int)
    expected = fields[: image.shape[0], : image.shape[1]].astype(int)
    assert np.abs(image - expected).max() < 60


# Images that do not fit together


def test_different_sizes_need_a_common_one(pets: Path) -> None:
    picture(1, size=(9, 8)).save(pets / "dog" / "small.png")
    check_line(
        refused_folder(pets), pets / "dog" / "small.png", "is 9 x 8, the first image 12 x 10", "give a common data.size"
    )
    assert load(data(source="folder", path=pets, size=8)).image_shape == (8, 8, 3)


def test_stretch_and_crop(pets: Path) -> None:
    """An image that is bright on its left and right loses these edges when it is cropped."""
    wide = np.zeros((HEIGHT, 4 * HEIGHT, 3), dtype=np.uint8)
    wide[:, :HEIGHT] = wide[:, -HEIGHT:] = 255
    for file in pets.rglob("*.png"):
        Image.fromarray(wide).save(file)
    stretched, cropped = (load(data(source="folder", path=pets, size=8, fit=fit)).train for fit in ("stretch", "crop"))
    assert stretched.images[:, :, [0, -1]].min() == 255
    assert cropped.images.max() == 0


def test_height_comes_before_width(pets: Path) -> None:
    """The reference is Pillow's `resize`, which takes the width first."""
    for file in pets.rglob("*.png"):
        picture(4, seed=2).save(file)
    expected = np.asarray(picture(4, seed=2).resize((9, 6), Image.Resampling.BILINEAR))
    dataset = load(data(source="folder", path=pets, size=[6, 9]))
    assert all(np.array_equal(image, expected) for image in dataset.train.images)


def test_a_colour_image_among_grey_ones(tmp_path: Path) -> None:
    class_folders(tmp_path / "pets", {"cat": 5, "dog": 5}, mode="L")
    picture(1).save(tmp_path / "pets" / "dog" / "colour.png")
    line = refused_folder(tmp_path / "pets")
    check_line(line, tmp_path / "pets" / "dog" / "colour.png", "is in colour, but the first image is grey")
    check_line(line, "data.channels = 1 or 3")
    for channels in (1, 3):
        assert load(data(source="folder", path=tmp_path / "pets", channels=channels)).image_shape[2] == channels


def test_a_grey_image_among_colour_ones_is_turned_into_colour(pets: Path) -> None:
    """No information is lost."""
    picture(1, mode="L", seed=4).save(pets / "dog" / "grey.png")
    dataset = load(data(source="folder", path=pets))
    assert dataset.image_shape == (HEIGHT, WIDTH, 3)
    grey = np.repeat(np.asarray(picture(1, mode="L", seed=4))[..., None], 3, axis=-1)
    assert any(np.array_equal(image, grey) for image in np.concatenate([dataset.train.images, dataset.test.images]))


# NumPy files


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        (
            {"x_train": pixels(np.arange(30) % 3) / np.float32(255)},
            ("x_train is float32", "needed: uint8", "(255 * x).round().astype('uint8')"),
        ),
        ({"x_train": pixels(np.arange(30) % 3) - 100.0}, ("x_train is float64", "its values are -9", "0 ... 255")),
        ({"x_train": pixels(np.arange(30) % 3).astype(np.int16)}, ("x_train is int16", "needed: uint8")),
        ({"y_train": np.arange(30) % 3 * 2, "y_test": np.arange(6) % 3 * 2}, ("no sample of class 1, 3", "0 to 2")),
        ({"y_train": np.arange(30) % 3 + 1, "y_test": np.arange(6) % 3 + 1}, ("no sample of class 0", "0 to 2")),
        ({"y_train": np.arange(30) % 3 - 1}, ("y_train holds -1", "labels count from 0")),
        ({"y_test": np.arange(6)}, ("the test part has class 3, 4, 5", "no training sample", "data.classes")),
        ({"y_train": np.arange(30) % 3 / 2}, ("y_train is float64", "one integer for each of the 30 images")),
        ({"y_train": np.array(["a", "b", "c"] * 10)}, ("y_train is <U1", "one integer for each of the 30 images")),
    ],
)
def test_wrong_arrays(tmp_path: Path, changes: dict[str, Any], texts: tuple[str, ...]) -> None:
    file = write_npz(tmp_path / "wrong.npz", **changes)
    check_line(refusal(data(source="npz", path=file)), file, *texts)


def test_gaps_are_allowed_if_classes_have_names(tmp_path: Path) -> None:
    file = write_npz(
        tmp_path / "named.npz", y_train=np.arange(30) % 2, y_test=np.arange(6) % 2, class_names=list("abc")
    )
    assert load(data(source="npz", path=file)).class_names == ("a", "b", "c")


def odd_file(path: Path, channels: int) -> Path:
    x_train, x_test = (pixels(np.arange(samples) % 3, channels=channels) for samples in (30, 6))
    return write_npz(path / "odd.npz", x_train=x_train, x_test=x_test)


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_arrays_that_are_neither_grey_nor_colour(tmp_path: Path, channels: int) -> None:
    """They train as they are, but cannot be resized; a last channel that may be transparency can be dropped."""
    file = odd_file(tmp_path, channels)
    assert load(data(source="npz", path=file)).image_shape == (HEIGHT, WIDTH, channels)
    check_line(refusal(data(source="npz", path=file, size=8)), file, f"{channels} channels", "data.channels = 1 or 3")
    if channels < 5:
        assert load(data(source="npz", path=file, size=8, channels=3)).image_shape == (8, 8, 3)


def test_five_channels_are_neither_grey_nor_colour(tmp_path: Path) -> None:
    """It ends in one line, not in Pillow's KeyError."""
    file = odd_file(tmp_path, 5)
    check_line(refusal(data(source="npz", path=file, channels=3)), file, "5 channels")


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_packing_arrays_that_are_neither_grey_nor_colour(tmp_path: Path, channels: int) -> None:
    """They are packed as they are, or refused in one line."""
    config = data(source="npz", path=odd_file(tmp_path, channels))
    try:
        pack(config, tmp_path / "out", workers=1)
    except DataError as error:
        check_line(str(error), tmp_path / "odd.npz", f"{channels} channels")
    else:
        same(load(config), load(data(source="packed", path=tmp_path / "out")))


def test_a_public_file_needs_no_labels(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "public.npz", y_train=None, x_test=None, y_test=None)
    dataset = load(data(source="digits", public={"source": "npz", "path": str(file)}))
    assert dataset.public is not None
    assert dataset.public.labels is None
    assert len(dataset.public.used) == 30
    check_line(refusal(data(source="npz", path=file)), file, "has no labels; they are needed for private data")


# Clients that bring their own data


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    for name in ("north", "south"):
        class_folders(tmp_path / "sites" / name, {"cat": 5, "dog": 5})
    return tmp_path / "sites"


def refused_clients(path: Path, **keys: Any) -> str:
    return refusal(data(source="clients", path=path, **keys))


def test_no_clients(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    check_line(
        refused_clients(tmp_path / "sites"), tmp_path / "sites", "holds no clients", "one folder or .npz file for each"
    )


def test_clients_with_different_classes(sites: Path) -> None:
    class_folders(sites / "west", {"cat": 5, "cow": 5})
    line = refused_clients(sites)
    check_line(line, "client west has class cow, which client north lacks", "data.classes = ['cat', 'cow', 'dog']")


def test_a_client_that_lacks_a_class_on_purpose(sites: Path) -> None:
    numbers = {"dog": 0, "cow": 1, "cat": 2}
    shutil.rmtree(sites)
    for name, own in (("north", ("cat", "dog")), ("south", ("cow", "cat")), ("west", ("cow",))):
        class_folders(sites / name, dict.fromkeys(own, 5), numbers=numbers)
    dataset = load(data(source="clients", path=sites, classes=list(numbers)))
    assert dataset.class_names == ("dog", "cow", "cat")
    assert dataset.train.owners is not None
    for part in (dataset.train, dataset.test):
        images, labels = used(part)
        assert classes_by_brightness(images) == labels
    owned = [set(dataset.train.known_labels[dataset.train.owners == client].tolist()) for client in range(3)]
    assert owned == [{0, 2}, {1, 2}, {1}]


def test_clients_whose_files_number_the_same_classes_differently(tmp_path: Path) -> None:
    """Names show which class is which, or one line says what to do; there is no IndexError."""
    orders = {"north": ["cat", "dog", "owl"], "south": ["owl", "cat", "dog"]}
    for client, order in orders.items():
        write_npz(tmp_path / f"{client}.npz", class_names=order)
    dataset = load(data(source="clients", path=tmp_path))
    assert dataset.train.owners is not None
    for number, order in enumerate(orders.values()):
        own = np.flatnonzero(dataset.train.owners == number)
        names = [dataset.class_names[label] for label in dataset.train.known_labels[own]]
        assert classes_by_brightness(dataset.train.images[own]) == [order.index(name) for name in names]


def test_a_class_that_no_client_has(sites: Path) -> None:
    """The message suggests the nearest name, as with any other source."""
    check_line(refused_clients(sites, classes=["cat", "dogs"]), "data.classes", "class dogs", 'did you mean "dog"?')


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_a_client_without_any_chosen_class(sites: Path, kind: str) -> None:
    """The message names the client; it is no IndexError and not about data.private_fraction."""
    if kind == "folder":
        class_folders(sites / "west", {"cow": 5})
    else:
        write_npz(sites / "west.npz", class_names=["cow", "elk", "owl"])
    check_line(refused_clients(sites, classes=["cat", "dog"]), "client west", "data.classes")


def test_two_clients_of_one_name(sites: Path) -> None:
    """Neither silently replaces the other."""
    labels = {"y_train": np.arange(30) % 2, "y_test": None, "x_test": None}
    write_npz(sites / "north.npz", **labels, class_names=["cat", "dog"])
    check_line(refused_clients(sites), sites / "north", sites / "north.npz")


def test_a_client_without_labels(sites: Path) -> None:
    (sites / "west").mkdir()
    picture().save(sites / "west" / "0.png")
    check_line(refused_clients(sites), "client west", sites / "west", "one sub-folder per class")


def test_a_client_without_a_test_part(sites: Path) -> None:
    class_folders(sites / "north" / "test", {"cat": 2, "dog": 2})
    check_line(
        refused_clients(sites), sites, "client south has no test part while others have one; give all of them one"
    )


def test_a_client_too_small_for_a_test_part(sites: Path) -> None:
    """The message names the client: a fifth of two is none, and without test samples its accuracy would be 0."""
    class_folders(sites / "west", {"cat": 2, "dog": 2})
    check_line(refused_clients(sites), "client west", "data.test_fraction")
    class_folders(sites / "east", {"cat": 3, "dog": 2})
    shutil.rmtree(sites / "west")
    assert len(load(data(source="clients", path=sites)).test.used) == 5


def test_a_damaged_file_of_a_client_is_named(sites: Path) -> None:
    damage(sites / "south" / "cat" / "3.png")
    check_line(refused_clients(sites), sites / "south" / "cat" / "3.png")
    (sites / "west.npz").write_bytes(b"nothing")
    check_line(refused_clients(sites), sites / "west.npz")


def test_clients_of_different_sizes(sites: Path) -> None:
    write_npz(
        sites / "west.npz",
        x_train=np.zeros((10, 9, 8, 3), dtype=np.uint8),
        y_train=np.arange(10) % 2,
        x_test=None,
        y_test=None,
        class_names=["cat", "dog"],
    )
    check_line(refused_clients(sites), sites / "west.npz", "x_train[0]", "is 9 x 8", "data.size")


def test_a_wrong_number_of_clients(sites: Path) -> None:
    values = {**TINY, "clients": 3, "data": {"source": "clients", "path": str(sites)}}
    check_line(
        refusal(lambda: resolve(Experiment(**values))), "clients = 3", "holds 2 (north, south)", "give clients = 2"
    )


def test_labels_of_the_clients_public_part_are_theirs_by_name(sites: Path) -> None:
    """They are known, by private numbers, if each of their classes is a private one; otherwise they are unknown."""
    class_folders(sites / "public", {"dog": 3}, numbers={"dog": 1})
    dataset = load(data(source="clients", path=sites))
    assert dataset.public is not None
    assert dataset.public.labels is not None
    assert dataset.public.labels.tolist() == [1, 1, 1]
    class_folders(sites / "public", {"zebra": 3})
    dataset = load(data(source="clients", path=sites))
    assert dataset.public is not None
    assert dataset.public.labels is None


# Keys


def test_unknown_classes(pets: Path) -> None:
    line = refused_folder(pets, classes=["cat", "dogs"])
    check_line(line, "data.classes", pets, "has no class dogs", 'did you mean "dog"?')
    check_line(refused_folder(pets, classes=[0, 2]), "data.classes", "has no class 2", "numbers are 0 to 1")
    check_line(refused_folder(pets, classes=[-1, 0]), "data.classes", "has no class -1")


@pytest.mark.parametrize("classes", [["cat", "cat"], ["cat", 1], [], "cat", [1.5]])
def test_choices_of_classes_that_are_wrong(pets: Path, classes: object) -> None:
    check_line(
        refusal(lambda: data(source="folder", path=pets, classes=classes)), "data.classes = ", "different class names"
    )


def test_classes_of_images_without_labels(pets: Path) -> None:
    config = data(source="digits", public={"source": "folder", "path": str(pets / "cat"), "classes": ["tabby"]})
    check_line(refusal(config), "data.public.classes", pets / "cat", "has no labels to choose by; leave it out")


def test_unknown_classes_of_a_public_set(pets: Path) -> None:
    """The message names the key that is wrong."""
    config = data(source="digits", public={"source": "folder", "path": str(pets), "classes": ["dogs"]})
    check_line(refusal(config), "data.public.classes", 'did you mean "dog"?')


@pytest.mark.parametrize("size", [0, -3, [4], [4, 5, 6], [4, 0], "large", 3.5, True])
def test_impossible_sizes(size: object) -> None:
    check_line(
        refusal(lambda: data(source="digits", size=size)),
        "data.size = ",
        "number of pixels from 1 to 16,384, or [height, width]",
    )


def test_a_key_that_the_source_does_not_read(pets: Path) -> None:
    line = refused_folder(pets, label="coarse")
    check_line(line, 'data.label: data.source = "folder" does not read it; it goes with clients, huggingface, npz')
    line = refusal(data(source="digits", public={"source": "folder", "path": str(pets), "download": True}))
    check_line(line, 'data.public.download: data.public.source = "folder" does not read it')


def test_an_unknown_public_source() -> None:
    line = refusal(data(source="digits", public={"source": "foldr", "path": "x"}))
    check_line(line, 'data.public.source = "foldr": unknown source; did you mean "folder"?')
    check_line(refusal(lambda: data(source="digits", public="nobody")), 'data.public = "nobody"')
    check_line(
        refusal(lambda: data(source="digits", public={"source": "digits", "size": 8})), "data.public.size: unknown key"
    )


def test_a_missing_public_part_of_its_own(pets: Path) -> None:
    check_line(refused_folder(pets, public="own"), 'data.public = "own"', pets, "has no public part of its own")


def test_a_test_fraction_beside_a_test_part(pets: Path) -> None:
    assert load(data(source="folder", path=pets, test_fraction=0.4)).set_aside == 0.4
    check_line(
        refused_folder(pets, test_fraction=0.01), pets, "no sample is left for the test part; raise data.test_fraction"
    )
    class_folders(pets / "val", {"cat": 2, "dog": 2})
    check_line(
        refused_folder(pets, test_fraction=0.4), "data.test_fraction", pets, "has a test part already; leave it out"
    )


def test_the_name_of_a_data_set_is_replaced_alone() -> None:
    """`data.name` does not own the other keys, as `algorithm.name` does."""
    text = 'clients = 1\n[data]\nsource = "torchvision"\npath = "x"\nname = "CIFAR10"\n'
    changed = Experiment.from_toml(text, overrides=["data.name=CIFAR100"])
    assert changed.data.model_dump(include={"source", "path", "name"}) == {
        "source": "torchvision",
        "path": "x",
        "name": "CIFAR100",
    }
    assert Experiment.from_toml(text).with_values(data={"name": "MNIST"}).data.path == "x"


# Libraries


@pytest.mark.parametrize(
    ("source", "name", "keys"),
    [("huggingface", "datasets", {}), ("torchvision", "torchvision", {"name": "MNIST"})],
)
def test_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str, keys: dict[str, Any]
) -> None:
    config = data(source=source, path=tmp_path, **keys)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not there
    check_line(refusal(config), f'data.source = "{source}"', "is not installed", f'pip install "manyheads[{source}]"')


def test_a_library_that_was_built_for_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('nms does not exist\\nand more')")
    for module in [module for module in sys.modules if module.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)
    line = refusal(data(source="torchvision", path=tmp_path, name="MNIST"))
    check_line(
        line, "torchvision.datasets cannot be imported: nms does not exist;", 'pip install "manyheads[torchvision]"'
    )


@pytest.fixture
def hugging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return datasets_below(tmp_path, monkeypatch)


def hugging_rows(datasets: Any, labels: list[Any], kind: Any, **more: list[Any]) -> Any:
    images = list(pixels(np.arange(len(labels)) % 3))
    kinds = {"image": datasets.Image(), "label": kind, **{name: datasets.Value("string") for name in more}}
    return datasets.Dataset.from_dict({"image": images, "label": labels, **more}, features=datasets.Features(kinds))


def test_a_name_on_the_hub_is_not_fetched_unasked(hugging: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unwanted(*args: object, **kwargs: object) -> None:
        asked.append(args)
        raise AssertionError("the network was asked")

    offline = hugging.config.HF_HUB_OFFLINE
    monkeypatch.setattr(socket, "getaddrinfo", unwanted)
    monkeypatch.setattr(socket.socket, "connect", unwanted)
    for name in ("nobody/such-a-data-set", "mnist"):
        line = refusal(data(source="huggingface", path=name))
        check_line(line, f'data.path = "{name}": cannot be read: ', "data.download = true fetches it from the hub")
    assert asked == []
    assert hugging.config.HF_HUB_OFFLINE is offline


def test_a_script_on_the_hub_is_not_run(hugging: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of the library ask on the terminal whether to run it, or just do."""
    asked = {}

    def fetched(*_: object, **options: object) -> None:
        asked.update(options)
        raise ValueError("is a script")

    monkeypatch.setattr(hugging, "load_dataset", fetched)
    check_line(
        refusal(data(source="huggingface", path="somebody/script", download=True)), "cannot be read: is a script"
    )
    assert asked == {"trust_remote_code": False}


def test_unknown_splits_and_columns(hugging: Any, tmp_path: Path) -> None:
    kind = hugging.ClassLabel(names=["cat", "dog", "owl"])
    splits = {name: hugging_rows(hugging, [0, 1, 2] * 4, kind) for name in ("train", "test")}
    path = tmp_path / "saved"
    hugging.DatasetDict(splits).save_to_disk(str(path))

    def refused(**keys: Any) -> str:
        return refusal(data(source="huggingface", path=path, **keys))

    check_line(refused(train_split="trian"), 'data.train_split = "trian"', path, 'did you mean "train"?')
    check_line(refused(test_split="validation"), 'data.test_split = "validation"', path, "known: test, train")
    check_line(refused(label="labels"), path, "has no column labels", 'did you mean "label"?')
    check_line(refused(fine_label="fine"), path, "has no column fine", "known: image, label")


def test_a_table_without_images(hugging: Any, tmp_path: Path) -> None:
    hugging.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}).save_to_disk(str(tmp_path / "texts"))
    line = refusal(data(source="huggingface", path=tmp_path / "texts"))
    check_line(line, tmp_path / "texts", "has no column of images; columns: text, label")


def test_not_a_data_set(hugging: Any, tmp_path: Path) -> None:
    line = refusal(data(source="huggingface", path=tmp_path))
    check_line(line, tmp_path, "holds no .parquet files, and is not a folder of save_to_disk")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    verbosity, logger = hugging.logging.get_verbosity(), logging.getLogger("datasets")
    told = BufferingHandler(100)
    logger.addHandler(told)
    check_line(refusal(data(source="huggingface", path=tmp_path)), tmp_path, "cannot be read")
    logger.removeHandler(told)
    assert told.buffer == []
    assert hugging.logging.get_verbosity() == verbosity


def test_labels_of_a_table_that_have_no_name(hugging: Any, tmp_path: Path) -> None:
    """The description lacks the last name."""
    rows = hugging_rows(hugging, [0, 1, 2] * 4, hugging.ClassLabel(names=["cat", "dog", "owl"]))
    rows.save_to_disk(str(tmp_path / "saved"))
    described = tmp_path / "saved" / "dataset_info.json"
    content = json.loads(described.read_text())
    content["features"]["label"]["names"].remove("owl")
    described.write_text(json.dumps(content))
    line = refusal(data(source="huggingface", path=tmp_path / "saved"))
    check_line(line, tmp_path / "saved", "labels of the train part go from 0 to 2, but there are only 2 classes")


def test_a_damaged_image_of_a_table_is_named(hugging: Any, tmp_path: Path) -> None:
    rows = hugging_rows(hugging, [0, 1, 2] * 4, hugging.ClassLabel(names=["cat", "dog", "owl"]))
    raw = rows.cast_column("image", hugging.Image(decode=False))
    broken = raw.map(lambda row, at: {"image": {"bytes": b"junk", "path": None} if at == 7 else row["image"]}, True)
    broken.cast_column("image", hugging.Image()).save_to_disk(str(tmp_path / "saved"))
    line = refusal(data(source="huggingface", path=tmp_path / "saved"))
    check_line(line, tmp_path / "saved", "train[7]", "is not an image", "manyheads pack")


def test_the_folder_of_a_repository_on_the_hub(hugging: Any, tmp_path: Path) -> None:
    """data/train-00000-of-00001.parquet is a file of `train`; nearly every copy of the hub looks like that."""
    kind = hugging.ClassLabel(names=["cat", "dog", "owl"])
    (tmp_path / "copy" / "data").mkdir(parents=True)
    for split, count in (("train", 4), ("test", 2)):
        file = tmp_path / "copy" / "data" / f"{split}-00000-of-00001.parquet"
        hugging_rows(hugging, [0, 1, 2] * count, kind).to_parquet(str(file))
    dataset = load(data(source="huggingface", path=tmp_path / "copy"))
    assert (len(dataset.train.used), len(dataset.test.used)) == (12, 6)


def test_labels_that_are_kept_secret(hugging: Any, tmp_path: Path) -> None:
    """The test split of many data sets on the hub has the label -1 only; one line says so."""
    kind = hugging.ClassLabel(names=["cat", "dog", "owl"])
    splits = {"train": hugging_rows(hugging, [0, 1, 2] * 4, kind), "test": hugging_rows(hugging, [-1] * 6, kind)}
    hugging.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    line = refusal(data(source="huggingface", path=tmp_path / "saved"))
    check_line(line, tmp_path / "saved", "test", "-1")


def test_labels_that_are_missing(hugging: Any, tmp_path: Path) -> None:
    """It ends in one line."""
    hugging_rows(hugging, [0, None, 2] * 4, hugging.Value("int64")).save_to_disk(str(tmp_path / "saved"))
    check_line(refusal(data(source="huggingface", path=tmp_path / "saved")), tmp_path / "saved", "label")


def test_fine_labels_that_are_texts(hugging: Any, tmp_path: Path) -> None:
    """They are numbered like any labels."""
    rows = hugging_rows(hugging, [0, 1, 2] * 4, hugging.Value("int64"), fine=["tabby", "poodle", "barn"] * 4)
    rows.save_to_disk(str(tmp_path / "saved"))
    dataset = load(data(source="huggingface", path=tmp_path / "saved", fine_label="fine"))
    assert dataset.train.fine is not None
    assert dataset.train.fine.dtype == np.int64


def test_plain_numbers_are_not_names(hugging: Any, tmp_path: Path) -> None:
    """A column of numbers does not say which class is which; the digits 0, 1, 2 are other classes."""
    hugging_rows(hugging, [0, 1, 2] * 4, hugging.Value("int64")).save_to_disk(str(tmp_path / "saved"))
    public = {"source": "huggingface", "path": str(tmp_path / "saved")}
    dataset = load(data(source="digits", public=public))
    assert dataset.public is not None
    assert dataset.public.labels is None


def test_unknown_data_sets_of_torchvision(tmp_path: Path) -> None:
    torchvision_or_skip()
    check_line(refusal(data(source="torchvision", path=tmp_path)), "data.name: missing")
    check_line(refusal(data(source="torchvision", path=tmp_path, name="CIFAR1")), 'data.name = "CIFAR1"', "CIFAR10")
    line = refusal(data(source="torchvision", path=tmp_path, name="CIFAR10"))
    check_line(line, tmp_path, "CIFAR10 cannot be read", "data.download = true fetches it")


def test_a_damaged_image_of_torchvision_is_named(tmp_path: Path) -> None:
    """Some data sets give a label only together with its image."""
    torchvision_or_skip()
    base = tmp_path / "gtsrb"
    class_folders(base / "GTSRB" / "Training", {"00000": 3, "00001": 3}, suffix=".ppm")
    class_folders(base / "GTSRB" / "Final_Test" / "Images", {"0": 2}, suffix=".ppm")
    (base / "GT-final_test.csv").write_text("Filename;ClassId\n0/0.ppm;0\n0/1.ppm;0\n")
    broken = base / "GTSRB" / "Training" / "00001" / "2.ppm"
    broken.write_bytes(b"x")
    check_line(refusal(data(source="torchvision", path=tmp_path, name="GTSRB")), broken, "manyheads pack")


def test_val_may_stand_for_test(tmp_path: Path) -> None:
    """ImageNet and others have `val` only."""
    torchvision_or_skip()
    for part in ("train", "val"):
        class_folders(tmp_path / "imagenette2" / part, {"n01440764": 3, "n02102040": 3}, suffix=".JPEG")
    dataset = load(data(source="torchvision", path=tmp_path, name="Imagenette"))
    assert len(dataset.test.used) == 6


# Packed folders


@pytest.fixture
def packed(pets: Path, tmp_path: Path) -> Path:
    pack(data(source="folder", path=pets), tmp_path / "packed", workers=1)
    return tmp_path / "packed"


def refused_packed(path: Path) -> str:
    return refusal(data(source="packed", path=path))


def test_a_folder_that_is_not_packed(pets: Path) -> None:
    check_line(refused_packed(pets), pets, "not a packed folder (it has no pack.json)")


def test_a_card_that_is_gone(packed: Path) -> None:
    (packed / "pack.json").unlink()
    check_line(refused_packed(packed), packed, "packing was not finished; the same command continues it")


def test_packing_that_was_not_finished(pets: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int, unreadable: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(data(source="folder", path=pets), tmp_path / "half", workers=1, progress=stop)
    assert (tmp_path / "half" / JOURNAL).exists()
    check_line(refused_packed(tmp_path / "half"), tmp_path / "half", "was not finished")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "parts": {"train": {}}}', "\x00\x00"]
)
def test_a_damaged_card(packed: Path, content: str) -> None:
    (packed / "pack.json").write_text(content)
    check_line(refused_packed(packed), packed / "pack.json", "not the description of a packed folder; pack it again")


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": {"train": {}}},
        {"parts": {"train": []}},
        {"parts": {"train": {"images": [10, 12, 10, 3]}}},
        {"parts": {"train": {"images": 3, "names": 3}}},
        {"classes": None},
    ],
)
def test_an_edited_card(packed: Path, changes: dict[str, Any]) -> None:
    card = json.loads((packed / "pack.json").read_text())
    (packed / "pack.json").write_text(json.dumps({**card, **changes}))
    check_line(refused_packed(packed), packed / "pack.json", "not the description of a packed folder; pack it again")


def test_a_card_of_another_version(packed: Path) -> None:
    card = json.loads((packed / "pack.json").read_text())
    (packed / "pack.json").write_text(json.dumps({**card, "format": 99}))
    check_line(refused_packed(packed), packed / "pack.json", "has format 99; this version of manyheads reads 1")


@pytest.mark.parametrize("name", ["train-images.npy", "train-labels.npy", "train-names.npy"])
def test_a_truncated_array(packed: Path, name: str) -> None:
    damage(packed / name)
    check_line(refused_packed(packed), packed / name, "cannot be mapped", "pack it again")
    (packed / name).unlink()
    check_line(refused_packed(packed), packed / name, "cannot be mapped", "pack it again")


@pytest.mark.parametrize("header", [b"", b"'", b"(", b"[" * 60, b"\xff", b"{'descr': 1}"])
def test_an_array_with_a_damaged_header(packed: Path, header: bytes) -> None:
    """NumPy reads a header as Python, and raises whatever Python does."""
    path = packed / "train-labels.npy"
    content = path.read_bytes()
    path.write_bytes(content[:10] + header + content[10 + len(header) :] if header else b"")
    check_line(refused_packed(packed), path, "cannot be mapped", "pack it again")


def test_an_array_of_another_shape(packed: Path) -> None:
    np.save(packed / "train-images.npy", np.zeros((10, 12, 9, 3), dtype=np.uint8))
    line = refused_packed(packed)
    check_line(line, packed / "train-images.npy", "has shape (10, 12, 9, 3) instead of (10, 12, 10, 3); pack it again")


def test_an_array_of_another_kind(packed: Path) -> None:
    """Pixels must be uint8, whatever their shape."""
    np.save(packed / "train-images.npy", np.zeros((10, 12, 10, 3), dtype=np.float32))
    check_line(refused_packed(packed), packed / "train-images.npy", "float32", "pack it again")


def test_no_pickle_is_loaded_from_a_packed_folder(packed: Path) -> None:
    np.save(packed / "train-labels.npy", np.array([{}] * 10, dtype=object), allow_pickle=True)
    check_line(refused_packed(packed), packed / "train-labels.npy", "cannot be mapped")


def test_a_damaged_npz_file(tmp_path: Path) -> None:
    """A wrong byte anywhere ends in one line, or changes nothing."""
    labels = np.arange(40) % 2
    file = tmp_path / "a.npz"
    np.savez_compressed(file, x_train=np.zeros((40, 6, 6, 3), dtype=np.uint8), y_train=labels)
    whole = file.read_bytes()
    refused = []
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            load(data(source="npz", path=file))
        except (DataError, ConfigurationError) as error:
            refused.append(str(error))
    assert not any("\n" in line for line in refused)
    assert len(refused) > 10


def test_channels_of_clients_are_not_lost(tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    sites.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        pixels = rng.integers(0, 256, size=(20, 6, 6, 5), dtype=np.uint8)
        np.savez(sites / f"{name}.npz", x_train=pixels, y_train=np.arange(20) % 2)
    dataset = load(data(source="clients", path=sites))
    assert dataset.image_shape == (6, 6, 5)
    assert dataset.train.images[dataset.train.used[-1]].tolist() in pixels.tolist()
    np.savez(sites / "b.npz", x_train=pixels[..., :3], y_train=np.arange(20) % 2)
    check_line(refusal(data(source="clients", path=sites)), "b.npz", "data.channels")


def test_what_is_left_out_is_not_resized(tmp_path: Path) -> None:
    labels = np.arange(50) % 5
    file = tmp_path / "a.npz"
    np.savez(file, x_train=np.zeros((50, 6, 6, 3), dtype=np.uint8), y_train=labels)
    dataset = load(data(source="npz", path=file, size=8, classes=[3, 1]))
    assert (len(dataset.train.images), len(dataset.test.images)) == (16, 4)
    assert sorted(dataset.train.known_labels.tolist()) == [0] * 8 + [1] * 8


def test_a_packed_set_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    """A file of holes is larger than any memory, and is mapped all the same."""
    images, side = 2**28, 64
    with (tmp_path / "train-images.npy").open("wb") as stream:
        described = {"descr": "|u1", "fortran_order": False, "shape": (images, side, side, 3)}
        np.lib.format.write_array_header_1_0(stream, described)
        try:
            stream.truncate(stream.tell() + images * side * side * 3)
        except OSError:
            pytest.skip("this file system has no files of three terabytes")
    array = mapped(tmp_path, "train", "images", [images, side, side, 3])
    assert not array.flags.writeable
    pixels = Pixels(array, torch.device("cpu"))
    assert pixels[torch.tensor([0, images - 1])].sum() == 0

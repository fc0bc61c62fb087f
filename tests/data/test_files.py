"""Files that are not opened: other formats than those of images, pipes, sockets and devices."""

import os
import shutil
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from manyheads import ConfigurationError, DataError, Experiment
from manyheads.cli.commands import app
from manyheads.data.frame import Frame
from manyheads.data.images import FORMATS
from manyheads.data.loading import load
from manyheads.data.pack import pack
from manyheads.data.reading import read_all
from manyheads.data.sources import list_source
from manyheads.data.sources.folders import SUFFIXES
from manyheads.setup.resolve import resolve
from tests.conftest import TINY
from tests.data.made import check_line, class_folders, data, datasets_below, picture, refusal

pytestmark = pytest.mark.timeout(30)  # whoever opens a pipe waits for ever
Make = Callable[[Path], None]


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket must be short
        made.bind(path.name)
        os.chdir(here)


SPECIAL: dict[str, Make] = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
}
special = pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "pets", {"cat": 5, "dog": 5})


def refused(path: Path, source: str = "folder") -> str:
    return refusal(data(source=source, path=path))


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_every_kind_of_image_that_is_looked_for_is_read(tmp_path: Path, suffix: str) -> None:
    mode = "1" if suffix == ".pbm" else "L" if suffix == ".pgm" else "RGB"
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(5):
            picture(number).convert(mode).save(tmp_path / name / f"{number}{suffix}")
    assert len(load(data(source="folder", path=tmp_path)).train.images) == 8


OTHERS = {
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n",
    "XPM": b'/* XPM */\nstatic char *a[] = {\n"1 1 1 1",\n"a c #000000",\n"a"\n};\n',
    "MSP": b"DanM" + bytes(28),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_format_is_not_opened_whatever_its_name(pets: Path, kind: str) -> None:
    (pets / "dog" / "1.png").write_bytes(OTHERS[kind])
    assert kind not in FORMATS
    check_line(refused(pets), pets / "dog" / "1.png", "is not an image of a known format")


def test_an_image_of_another_format_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would decode whatever Pillow can, and fetch whatever a row names."""
    datasets = datasets_below(tmp_path, monkeypatch)
    monkeypatch.setattr("datasets.arrow_dataset.xgetsize", lambda path: 0)  # saving would look for what is not there
    for name, cell in (
        ("eps", {"bytes": OTHERS["EPS"], "path": None}),
        ("far", {"bytes": None, "path": "http://127.0.0.1:9/0.png"}),
    ):
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
        rows = {"image": [cell] * 12, "label": [0, 1] * 6}
        plain = datasets.Features(features | {"image": datasets.Image(decode=False)})
        datasets.Dataset.from_dict(rows, plain).cast(features).save_to_disk(str(tmp_path / name))
        reason = {"eps": "is not an image", "far": "cannot be read: No such file"}[name]
        check_line(refused(tmp_path / name, "huggingface"), tmp_path / name, reason)


def test_an_image_that_would_fill_the_memory(pets: Path) -> None:
    """A file of a few hundred bytes holds 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    (pets / "dog" / "1.png").write_bytes(content)
    check_line(refused(pets), pets / "dog" / "1.png", "cannot be decoded", "decompression bomb")


def test_too_little_memory_is_not_blamed_on_an_image(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing would otherwise leave the image out for ever."""
    found = list_source(data(source="folder", path=pets))

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", full)
    with pytest.raises(MemoryError):
        read_all(found.train.images, Frame(8, 8, 3))
    with pytest.raises(DataError, match=r"out of memory: .*; lower data\.size"):
        load(data(source="folder", path=pets))


@special
def test_a_special_file_among_images(pets: Path, tmp_path: Path, make: Make) -> None:
    (pets / "dog" / "1.png").unlink()
    make(pets / "dog" / "1.png")
    check_line(refused(pets), pets / "dog" / "1.png", "cannot be read: is not a file", "manyheads pack")
    card = pack(data(source="folder", path=pets), tmp_path / "packed", workers=1)
    assert [lost["image"] for lost in card["unreadable"]] == [str(pets / "dog" / "1.png")]


@special
def test_a_special_file_instead_of_an_array(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "x.npz")
    check_line(refused(tmp_path / "x.npz", "npz"), tmp_path / "x.npz", "cannot be read: is not a file")
    check_line(refused(tmp_path, "clients"), tmp_path / "x.npz", "cannot be read: is not a file")


@special
def test_a_special_file_in_a_folder_of_tables(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets_below(tmp_path / "elsewhere", monkeypatch)
    (tmp_path / "tables").mkdir()
    make(tmp_path / "tables" / "train.parquet")
    check_line(refused(tmp_path / "tables", "huggingface"), "train.parquet", "is a pipe, a socket or a device")


@special
@pytest.mark.parametrize("file", ["train-images.npy", "train-labels.npy", "pack.json"])
def test_a_special_file_in_a_packed_folder(pets: Path, tmp_path: Path, make: Make, file: str) -> None:
    pack(data(source="folder", path=pets), tmp_path / "packed", workers=1)
    (tmp_path / "packed" / file).unlink()
    make(tmp_path / "packed" / file)
    check_line(refused(tmp_path / "packed", "packed"), tmp_path / "packed" / file)


@special
def test_a_special_file_where_packing_writes(pets: Path, tmp_path: Path, make: Make) -> None:
    out = tmp_path / "packed"
    out.mkdir()
    make(out / "journal.jsonl")
    check_line(refusal(lambda: pack(data(source="folder", path=pets), out, workers=1)), out)


@special
def test_a_special_file_instead_of_weights(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "net.safetensors")
    given = Experiment(**TINY).with_values(model={"weights": str(tmp_path / "net.safetensors")})
    with pytest.raises(ConfigurationError, match=r'model\.weights = ".*": cannot be read: is not a file'):
        resolve(given, pretrained=True)


@special
@pytest.mark.parametrize("command", ["run", "split", "frontier", "pack"])
def test_a_special_file_instead_of_an_experiment(tmp_path: Path, make: Make, command: str) -> None:
    make(tmp_path / "x.toml")
    result = CliRunner().invoke(app, [command, str(tmp_path / "x.toml"), *(["out"] if command == "pack" else [])])
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path / 'x.toml'}: cannot be read: is not a file\n"


def test_links_to_images_are_followed(pets: Path, tmp_path: Path) -> None:
    shutil.move(pets / "dog" / "1.png", tmp_path / "elsewhere.png")
    (pets / "dog" / "1.png").symlink_to(tmp_path / "elsewhere.png")
    assert np.asarray(load(data(source="folder", path=pets)).train.images).shape[0] == 8

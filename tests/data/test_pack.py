"""Packing can be stopped at any moment, never silently loses an image, and changes no number of a training run."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from manyheads import ConfigurationError, DataError, Experiment, train
from manyheads.cli.commands import app
from manyheads.data import images
from manyheads.data.arrays import ImageSet
from manyheads.data.journal import JOURNAL
from manyheads.data.loading import load
from manyheads.data.pack import pack, verify
from manyheads.setup.build import assemble
from tests.contracts import stored_images, train_by_hand, weights
from tests.data.made import (
    check_line,
    class_folders,
    classes_by_brightness,
    data,
    everything,
    picture,
    refusal,
    same,
    used,
)
from tests.data.packing import CHUNK

ROOT = Path(__file__).parents[2]
IMAGES = 27  # of `pets`, in six chunks of the training part and two of the test part


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyheads.data.reading.CHUNK", CHUNK)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Write three classes with 21 training and 6 test images."""
    class_folders(tmp_path / "pets" / "train", {"cat": 7, "dog": 7, "owl": 7})
    class_folders(tmp_path / "pets" / "test", {"cat": 2, "dog": 2, "owl": 2}, seed=1)
    return tmp_path / "pets"


@pytest.fixture
def whole(pets: Path, tmp_path: Path) -> dict[str, bytes]:
    """Return the files of an uninterrupted packing."""
    pack_pets(pets, tmp_path / "whole")
    return everything((tmp_path / "whole").iterdir())


class Watched:
    """The progress of a packing, which may be interrupted."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.seen: list[tuple[int, int, int]] = []

    def __call__(self, done: int, total: int, unreadable: int) -> None:
        self.seen.append((done, total, unreadable))
        if self.stop is not None and done >= self.stop:
            raise KeyboardInterrupt


def pack_pets(pets: Path, out: Path, *, size: int = 8, workers: int = 1, stop: int | None = None) -> Watched:
    watched = Watched(stop)
    pack(data(source="folder", path=pets, size=size), out, workers=workers, progress=watched)
    return watched


def stopped(pets: Path, out: Path, at: int, workers: int = 1) -> None:
    with pytest.raises(KeyboardInterrupt):
        pack_pets(pets, out, stop=at, workers=workers)
    assert not (out / "pack.json").exists()


def journal(out: Path) -> list[dict[str, Any]]:
    """Return the finished chunks."""
    return [json.loads(line) for line in (out / JOURNAL).read_text().splitlines()][1:]


def files_of(line: dict[str, Any], pets: Path) -> list[Path]:
    """Return the images of a chunk."""
    every = sorted((pets / line["part"]).rglob("*.png"))
    return every[line["start"] : line["start"] + CHUNK]


def spoil(file: Path) -> None:
    """Make a file unreadable with its size and time unchanged, so that reading it again shows."""
    found = file.stat()
    file.write_bytes(b"x" * found.st_size)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


def spoil_done(done: list[dict[str, Any]], pets: Path) -> None:
    """Spoil all images of finished chunks except the very first, which is read for its shape."""
    for line in done:
        for file in files_of(line, pets):
            if file != pets / "train" / "cat" / "0.png":
                spoil(file)


# Stopped and gone on with


@pytest.mark.parametrize("at", [0, CHUNK, 13, IMAGES])
@pytest.mark.parametrize("workers", [1, 2])
def test_packing_continues_without_reading_anything_twice(
    pets: Path, tmp_path: Path, whole: dict[str, bytes], at: int, workers: int
) -> None:
    out = tmp_path / "out"
    stopped(pets, out, at, workers)
    done = journal(out)
    assert len(done) >= (at + CHUNK - 1) // CHUNK
    spoil_done(done, pets)
    watched = pack_pets(pets, out, workers=workers)
    assert watched.seen[0] == (sum(len(files_of(line, pets)) for line in done), IMAGES, 0)
    assert watched.seen[-1] == (IMAGES, IMAGES, 0)
    assert everything(out.iterdir()) == whole


def test_stopped_again_and_again(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    for at in (CHUNK, 2 * CHUNK, 5 * CHUNK):
        stopped(pets, tmp_path / "out", at)
    pack_pets(pets, tmp_path / "out")
    assert everything((tmp_path / "out").iterdir()) == whole


@contextmanager
def packing(pets: Path, out: Path, then: str, images: int) -> Iterator["subprocess.Popen[str]"]:
    """Give a process with workers that has packed so many images; in the end none of them is left."""
    command = [sys.executable, "-m", "tests.data.packing", str(pets), str(out), then, str(images)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert int(process.stdout.readline()) >= images
        yield process
    finally:
        kill_group(process)
        process.stdout.close()
        process.stderr.close()


def kill_group(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)


def any_left(process: "subprocess.Popen[str]") -> bool:
    """Tell whether one of its workers is still alive."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_machine_that_was_switched_off(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    """All of its processes are killed at once."""
    out = tmp_path / "out"
    with packing(pets, out, "wait", 2 * CHUNK) as process:
        kill_group(process)
    done = journal(out)
    assert len(done) >= 1
    spoil_done(done, pets)
    pack_pets(pets, out)
    assert everything(out.iterdir()) == whole


def test_a_process_that_was_killed(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    """Workers end with it and hold no lock, so that the same command can continue at once."""
    out = tmp_path / "out"
    with packing(pets, out, "die", 2 * CHUNK) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
        pack_pets(pets, out)
        deadline = time.monotonic() + 30
        while (left := any_left(process)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left
    assert everything(out.iterdir()) == whole


def test_a_file_that_changed_in_between_is_read_again(pets: Path, tmp_path: Path) -> None:
    out, changed = tmp_path / "out", pets / "train" / "cat" / "1.png"
    stopped(pets, out, 2 * CHUNK)
    assert any(changed in files_of(line, pets) for line in journal(out))
    picture(9, seed=3).save(changed)
    os.utime(changed, ns=(1, 1))
    pack_pets(pets, out)
    pack_pets(pets, tmp_path / "afresh")
    assert everything(out.iterdir()) == everything((tmp_path / "afresh").iterdir())
    assert 9 in classes_by_brightness(load(data(source="packed", path=out)).train.images)


def test_half_a_line_of_the_journal_is_nothing(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    stopped(pets, out, 3 * CHUNK)
    lines = (out / JOURNAL).read_bytes().splitlines(keepends=True)
    (out / JOURNAL).write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    stopped(pets, out, 5 * CHUNK)  # what comes next stands on a line of its own
    watched = pack_pets(pets, out)
    assert watched.seen[0][0] >= 5 * CHUNK
    assert everything(out.iterdir()) == whole


def test_half_of_the_first_line_is_nothing_too(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / JOURNAL).write_bytes(b'{"packi')
    pack_pets(pets, out)
    assert everything(out.iterdir()) == whole


def test_a_damaged_journal(pets: Path, tmp_path: Path) -> None:
    """It ends in one line, not in a JSONDecodeError."""
    out = tmp_path / "out"
    stopped(pets, out, CHUNK)
    (out / JOURNAL).write_bytes(b"\0\0\0\0\n" + (out / JOURNAL).read_bytes())
    check_line(refusal(lambda: pack_pets(pets, out)), out, "remove it or give another folder")


def test_an_empty_journal_beside_other_files(pets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / JOURNAL).touch()
    (out / "train-images.npy").write_text("precious")
    check_line(refusal(lambda: pack_pets(pets, out)), out, "exists already and holds other files")
    assert (out / "train-images.npy").read_text() == "precious"


def test_a_process_that_waited_for_a_finished_packing_does_not_pack_again(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, lock = tmp_path / "out", fcntl.lockf

    def late(*arguments: Any) -> None:
        """Another process ends and releases the lock after we have opened the journal and before we lock it."""
        (out / JOURNAL).unlink()
        lock(*arguments)

    monkeypatch.setattr(fcntl, "lockf", late)
    check_line(refusal(lambda: pack_pets(pets, out)), out, "another process has just packed into it")


@pytest.mark.parametrize("file", ["train-images.npy", JOURNAL, "pack.json"])
def test_a_full_disk_names_the_file(pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    sync = os.fsync

    def full(descriptor: int) -> None:
        if file in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        pack_pets(pets, tmp_path / "out")
    assert error.value.filename == str(tmp_path / "out" / file)


@pytest.mark.parametrize("kind", ["images", "names"])
def test_an_array_that_went_missing_in_between(pets: Path, tmp_path: Path, whole: dict[str, bytes], kind: str) -> None:
    """Chunks whose pixels are gone are not done, whatever the journal says."""
    out = tmp_path / "out"
    stopped(pets, out, 3 * CHUNK)
    (out / f"train-{kind}.npy").unlink()
    pack_pets(pets, out)
    assert everything(out.iterdir()) == whole


def test_half_of_another_packing_is_not_gone_on_with(pets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped(pets, out, CHUNK)
    before = everything(out.iterdir())
    check_line(
        refusal(lambda: pack_pets(pets, out, size=9)), out, "holds an unfinished packing of other data; remove it"
    )
    picture(2, seed=50).save(pets / "train" / "owl" / "more.png")
    check_line(refusal(lambda: pack_pets(pets, out)), out, "holds an unfinished packing of other data")
    assert everything(out.iterdir()) == before, "nothing is touched"


def test_nothing_is_packed_over(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "whole"
    check_line(refusal(lambda: pack_pets(pets, out)), out, "is packed already; remove it or give another folder")
    assert everything(out.iterdir()) == whole
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("precious")
    check_line(
        refusal(lambda: pack_pets(pets, tmp_path / "thesis")), tmp_path / "thesis", "holds other files; give another"
    )
    assert everything((tmp_path / "thesis").iterdir()) == {"thesis.txt": b"precious"}


def test_two_at_once(pets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with packing(pets, out, "wait", CHUNK):
        check_line(
            refusal(lambda: pack_pets(pets, out)), out, "another process is packing into it; wait for it or stop it"
        )


def test_a_worker_that_dies(
    pets: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed like one that asks for too much memory."""
    original, here = images.ImageFiles.open, os.getpid()

    def dies(self: images.ImageFiles, number: int, size: tuple[int, int] | None) -> Any:
        if os.getpid() != here and self.name(number).endswith("dog/6.png"):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, number, size)

    monkeypatch.setattr(images.ImageFiles, "open", dies)
    line = refusal(lambda: pack_pets(pets, tmp_path / "out"))
    check_line(line, tmp_path / "out", "a worker was killed", "the same command continues", "fewer --workers")
    monkeypatch.setattr(images.ImageFiles, "open", original)
    watched = pack_pets(pets, tmp_path / "out")
    assert watched.seen[0][0] >= CHUNK, "what was done before is kept"
    assert everything((tmp_path / "out").iterdir()) == whole


def test_the_number_of_workers_changes_nothing(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    (pets / "train" / "cat" / "0.png").rename(pets / "train" / "cat" / "0.x.png")
    for workers in (1, 3):
        pack_pets(pets, tmp_path / str(workers), workers=workers)
    assert everything((tmp_path / "1").iterdir()) == everything((tmp_path / "3").iterdir()) == whole


def test_a_file_name_that_is_not_text(pets: Path, tmp_path: Path) -> None:
    """Names of old archives may hold any bytes."""
    file = os.fsencode(pets / "train" / "cat") + b"/\xff\xfe.png"
    try:
        os.rename(os.fsencode(pets / "train" / "cat" / "0.png"), file)
    except OSError:
        pytest.skip("this file system knows no such names")
    stopped(pets, tmp_path / "out", CHUNK)
    pack_pets(pets, tmp_path / "out")
    same(load(data(source="packed", path=tmp_path / "out")), load(data(source="folder", path=pets, size=8)))


# Images that cannot be read


@pytest.fixture
def spoilt(pets: Path) -> list[Path]:
    """Make three files of two parts unreadable."""
    found = [pets / "train" / "cat" / "0.png", pets / "train" / "owl" / "6.png", pets / "test" / "dog" / "1.png"]
    for file in found:
        spoil(file)
    return found


def test_unreadable_images_are_counted_listed_and_left_out(pets: Path, tmp_path: Path, spoilt: list[Path]) -> None:
    watched = pack_pets(pets, tmp_path / "out", workers=2)
    assert watched.seen[-1] == (IMAGES, IMAGES, 3)
    card = json.loads((tmp_path / "out" / "pack.json").read_text())
    assert [(lost["part"], lost["image"]) for lost in card["unreadable"]] == [
        (file.relative_to(pets).parts[0], str(file)) for file in spoilt
    ]
    reasons = ("cannot be decoded", "is empty", "is not an image")
    assert all(lost["why"].startswith(reasons) for lost in card["unreadable"])
    for file in spoilt:
        file.unlink()
    packed, without = load(data(source="packed", path=tmp_path / "out")), load(data(source="folder", path=pets, size=8))
    same(packed, without)
    assert (len(packed.train.used), len(packed.test.used)) == (19, 5)


def test_unreadable_images_are_remembered_over_a_stop(pets: Path, tmp_path: Path, spoilt: list[Path]) -> None:
    pack_pets(pets, tmp_path / "whole")
    stopped(pets, tmp_path / "out", 4 * CHUNK)
    pack_pets(pets, tmp_path / "out")
    assert everything((tmp_path / "out").iterdir()) == everything((tmp_path / "whole").iterdir())


def test_unreadable_images_belong_to_no_client(pets: Path, tmp_path: Path, spoilt: list[Path]) -> None:
    pack_pets(pets, tmp_path / "out")
    checked = assemble(small_experiment(source="packed", path=str(tmp_path / "out")))
    train_images = checked.resolved.dataset.train.images
    owned = np.concatenate(
        [checked.resolved.split.public, checked.resolved.split.validation, *checked.resolved.split.private]
    )
    assert len(owned) == 19
    assert all(train_images[number].any() for number in owned), "the place of an unreadable image is empty"
    assert len(checked.parts[-1].samples) == 5
    assert all(checked.resolved.dataset.test.images[number].any() for number in checked.parts[-1].samples.tolist())


def test_nothing_but_unreadable_images(pets: Path, tmp_path: Path) -> None:
    for file in (pets / "test").rglob("*.png"):
        spoil(file)
    line = refusal(lambda: pack_pets(pets, tmp_path / "out"))
    check_line(line, pets / "test" / "cat" / "0.png", "is not an image", "no image of the test part can be read")
    for file in (pets / "train").rglob("*.png"):
        spoil(file)
    line = refusal(lambda: pack_pets(pets, tmp_path / "other"))
    check_line(line, "no image can be read", pets / "train" / "cat" / "0.png", "is not an image")


def test_images_of_different_sizes_are_a_mistake_not_a_loss(pets: Path, tmp_path: Path) -> None:
    picture(1, size=(9, 8)).save(pets / "train" / "dog" / "small.png")
    config = data(source="folder", path=pets)
    line = refusal(lambda: pack(config, tmp_path / "out", workers=2))
    check_line(line, pets / "train" / "dog" / "small.png", "give a common data.size")


def test_a_public_set_from_elsewhere_is_packed_on_its_own(pets: Path, tmp_path: Path) -> None:
    config = data(source="folder", path=pets, public={"source": "digits"})
    with pytest.raises(ConfigurationError, match=r"^data\.public: .* packed on its own"):
        pack(config, tmp_path / "out", workers=1)


# Afterwards


def test_verify_finds_one_changed_byte(pets: Path, tmp_path: Path, spoilt: list[Path]) -> None:
    """Verifying finds nothing if nothing was changed, even if some images could not be read."""
    out, watched = tmp_path / "out", Watched()
    pack_pets(pets, out)
    assert verify(out, watched) == []
    assert watched.seen[-1] == (IMAGES, IMAGES, 0)
    for part, number in (("train", 17), ("test", 0)):
        file, place = out / f"{part}-images.npy", (number + 1) * 8 * 8 * 3
        content = bytearray(file.read_bytes())
        start = len(content) - len(np.load(file).tobytes())
        content[start + place - 1] ^= 1  # its last byte
        file.write_bytes(content)
    assert verify(out) == ["train[17]", "test[0]"]


def test_verify_says_what_cannot_be_read(pets: Path, tmp_path: Path) -> None:
    """It ends in the same line as loading does."""
    out = tmp_path / "out"
    pack_pets(pets, out)
    for name in ("train-images.npy", "test-names.npy"):
        content = (out / name).read_bytes()
        (out / name).write_bytes(content[:-5])
        check_line(refusal(lambda: verify(out)), out / name, "pack it again")
        (out / name).write_bytes(content)


def is_mapped(part: ImageSet) -> bool:
    return isinstance(part.images, np.memmap) and Path(str(part.images.filename)).name.endswith("-images.npy")


def test_images_stay_on_the_disk(pets: Path, tmp_path: Path) -> None:
    """No copy is made, with or without a choice of classes, up to the tensor that training reads from."""
    out = tmp_path / "out"
    pack_pets(pets, out)
    for keys in ({}, {"classes": ["owl", "cat"]}):
        checked = assemble(small_experiment(source="packed", path=str(out), **keys))
        assert is_mapped(checked.resolved.dataset.train)
        assert is_mapped(checked.resolved.dataset.test)
        address = checked.resolved.dataset.train.images.ctypes.data
        assert {stored_images(client.private).data_ptr() for client in checked.clients} == {address}
        assert checked.parts[-1].pixels._stored.data_ptr() == checked.resolved.dataset.test.images.ctypes.data
        images, labels = used(checked.resolved.dataset.train)
        assert classes_by_brightness(images) == [
            ("cat", "dog", "owl").index(checked.resolved.dataset.class_names[label]) for label in labels
        ]


def test_setting_a_test_part_aside_copies_nothing(pets: Path, tmp_path: Path) -> None:
    pack(data(source="folder", path=pets / "train", size=8), tmp_path / "out", workers=1)
    dataset = load(data(source="packed", path=tmp_path / "out", classes=["owl", "cat"]))
    assert is_mapped(dataset.train)
    assert dataset.train.images is dataset.test.images
    assert set(dataset.train.used.tolist()).isdisjoint(dataset.test.used.tolist())
    same(dataset, load(data(source="folder", path=pets / "train", size=8, classes=["owl", "cat"])))


def small_experiment(**keys: Any) -> Experiment:
    return Experiment(
        clients=2,
        data={"public_fraction": 0.3, "validation_fraction": 0.2, "skew": 0.0, "augment": "resized-crop-flip", **keys},
        model={"backbone": "cnn", "width": 4, "auxiliary_heads": 2},
        algorithm={"name": "mhd", "pool_size": 2, "pool_every": 3},
        training={"steps": 8, "batch_size": 4, "public_batch_size": 4, "warmup_steps": 1, "log_every": 4},
        evaluate={"every": 8},
    )


def test_training_is_the_same_to_the_last_bit(pets: Path, tmp_path: Path) -> None:
    """Three runs are compared: packed, from files, and from arrays in memory."""
    out, direct = tmp_path / "out", load(data(source="folder", path=pets, size=8))
    pack_pets(pets, out)
    arrays = {"x_train": direct.train.images, "y_train": direct.train.labels}
    arrays |= {"x_test": direct.test.images, "y_test": direct.test.labels, "class_names": np.array(direct.class_names)}
    np.savez(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]
    sources: list[dict[str, Any]] = [
        {"source": "packed", "path": str(out)},
        {"source": "npz", "path": str(tmp_path / "arrays.npz")},
        {"source": "folder", "path": str(pets), "size": 8},
    ]
    ensembles = [assemble(small_experiment(**keys)) for keys in sources]
    losses = [train_by_hand(ensemble) for ensemble in ensembles]
    assert len(losses[0]) == 8
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])
    assert weights(ensembles[0]) == weights(ensembles[1]) == weights(ensembles[2])


# The command


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["pack", *map(str, arguments), "--quiet"])


def mistake(*arguments: str | Path) -> str:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.output
    return lines[0]


def test_the_command_packs_a_folder(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    result = call(pets, tmp_path / "out", "--size", "8", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert everything((tmp_path / "out").iterdir()) == whole
    line = f"{tmp_path / 'out'}: train 21, test 6 images of 8 x 8 x 3, 5.2 KB; "
    assert result.output.strip() == f'{line}use it as: source = "packed", path = "{tmp_path / "out"}"'


def test_the_command_says_what_was_left_out(pets: Path, tmp_path: Path, spoilt: list[Path]) -> None:
    (pets / "train" / "cat" / "notes.txt").write_text("cats")
    result = call(pets, tmp_path / "out", "--size", "8")
    assert result.exit_code == 0, result.output
    notes = [line for line in result.output.splitlines() if line.startswith("note: ")]
    check_line(notes[0], "left out: 1 file(s) that are no images by name", "notes.txt")
    check_line(notes[1], "3 image(s) could not be read and are left out", tmp_path / "out" / "pack.json", spoilt[0])
    check_line(result.output, "train 19, test 5 images")


def test_the_command_packs_experiments_and_arrays(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    toml, npz = tmp_path / "pets.toml", tmp_path / "pets.npz"
    toml.write_text(str(small_experiment(source="folder", path=str(pets))))
    assert call(toml, tmp_path / "a", "--size", "8").exit_code == 0
    assert everything((tmp_path / "a").iterdir()) == whole
    chosen = ("--set", "data.size=[6, 7]", "--set", "data.classes=['owl', 'cat']", "--set", "data.channels=1")
    assert call(toml, tmp_path / "b", *chosen).exit_code == 0
    dataset = load(data(source="packed", path=tmp_path / "b"))
    assert (dataset.class_names, dataset.image_shape, len(dataset.train.images)) == (("owl", "cat"), (6, 7, 1), 14)
    direct = load(data(source="folder", path=pets))
    np.savez(npz, x_train=direct.train.images, y_train=direct.train.known_labels)
    assert call(npz, tmp_path / "c").exit_code == 0
    same(load(data(source="packed", path=tmp_path / "c")), load(data(source="npz", path=npz)))


def test_mistakes_of_the_command(pets: Path, tmp_path: Path) -> None:
    check_line(mistake(pets), "error: OUT: missing; manyheads pack WHAT OUT")
    check_line(mistake(tmp_path / "none", tmp_path / "out"), tmp_path / "none", "No such file")
    check_line(mistake(tmp_path / "none.toml", tmp_path / "out"), "none.toml: cannot be read")
    check_line(mistake(tmp_path / "none.npz", tmp_path / "out"), "none.npz", "No such file")
    check_line(mistake(pets, tmp_path / "out", "--source", "foldr"), 'data.source = "foldr": unknown source')
    check_line(mistake(pets, tmp_path / "out", "--set", "data.szie=8"), "data.szie: unknown key")
    (tmp_path / "file").write_text("")
    check_line(mistake(pets, tmp_path / "file" / "out"), tmp_path / "file", "Not a directory")
    check_line(mistake(pets, "--verify"), pets, "not a packed folder")


def test_an_out_that_is_a_file(pets: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_line(mistake(pets, tmp_path / "file"), tmp_path / "file", "File exists")


def test_the_command_verifies(pets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack_pets(pets, out)
    result = call(out, "--verify")
    assert result.exit_code == 0
    check_line(result.output, out, "images are unchanged since they were packed")
    content = bytearray((out / "train-images.npy").read_bytes())
    content[-1] ^= 1
    (out / "train-images.npy").write_bytes(content)
    check_line(mistake(out, "--verify"), out, "images are damaged, the first train[20]; pack it again")


def interrupting(original: Callable[..., Any]) -> Callable[..., Any]:
    def packs(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "progress": Watched(CHUNK)})

    return packs


def test_an_interrupted_command_says_how_to_continue(
    pets: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("manyheads.data.pack.pack", interrupting(pack))
        result = call(pets, tmp_path / "out", "--size", "8")
    assert result.exit_code == 130
    assert result.stderr.strip() == "stopped; the same command continues where it stopped"
    assert call(pets, tmp_path / "out", "--size", "8").exit_code == 0
    assert everything((tmp_path / "out").iterdir()) == whole


def test_ctrl_c_reaches_a_real_process(pets: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    """Ctrl-C reaches the workers, too, but the first process alone decides."""
    out = tmp_path / "out"
    with packing(pets, out, "wait", 2 * CHUNK) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert len(journal(out)) >= 2
        pack_pets(pets, out)
    assert everything(out.iterdir()) == whole


def test_a_packed_folder_trains(pets: Path, tmp_path: Path) -> None:
    pack_pets(pets, tmp_path / "out")
    summary = train(small_experiment(source="packed", path=str(tmp_path / "out"))).summary
    assert summary["classes"] == ["cat", "dog", "owl"]
    assert summary["image_shape"] == [8, 8, 3]


def test_a_folder_is_not_packed_into_itself(tmp_path: Path) -> None:
    """The packed folder would be taken for a class the next time."""
    pets = class_folders(tmp_path / "pets", {"cat": 4, "dog": 4})
    with pytest.raises(DataError, match="is inside the folder to pack"):
        pack(data(source="folder", path=pets), pets / "packed", workers=1)
    assert not (pets / "packed").exists()
    (tmp_path / "link").symlink_to(pets)
    with pytest.raises(DataError, match="is inside the folder to pack"):
        pack(data(source="folder", path=pets), tmp_path / "link" / "packed", workers=1)


def test_a_link_to_itself_is_no_place_for_a_packed_folder(tmp_path: Path) -> None:
    pets = class_folders(tmp_path / "pets", {"cat": 4, "dog": 4})
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        pack(data(source="folder", path=pets), tmp_path / "loop", workers=1)

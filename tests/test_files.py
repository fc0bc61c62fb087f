"""Files that appear whole or not at all, folders that nobody else fills, and special files that are not opened."""

import errno
import fcntl
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from manyheads import RunError
from manyheads.files import new_folder, open_file, read_file, write_whole


def at_once(workers: int, work: Callable[[int], None]) -> list[BaseException]:
    """Do the same in several threads at the same moment; return their errors."""
    together, problems = threading.Barrier(workers), list[BaseException]()

    def one(number: int) -> None:
        together.wait(timeout=10)
        try:
            work(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    return problems


def test_threads_that_write_one_file_each_write_it_whole(tmp_path: Path) -> None:
    place = tmp_path / "file"

    def write(number: int) -> None:
        for _ in range(20):
            write_whole(place, bytes([number]) * 10_000)

    assert at_once(4, write) == []
    content = place.read_bytes()
    assert len(content) == 10_000
    assert len(set(content)) == 1
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_whole(tmp_path / "picture.png", b"pixels")
    assert error.value.filename == str(tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        write_whole(tmp_path / "nowhere" / "file", b"")
    assert error.value.filename == str(tmp_path / "nowhere" / "file")


def test_a_link_is_replaced_and_what_it_points_at_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "link").read_text() == "new"


def test_special_files_are_not_replaced(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for place in (pipe, folder):
        with pytest.raises(OSError, match=r"is not a file|Is a directory") as error:
            write_whole(place, b"new")
        assert error.value.filename == str(place)
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "folder"}


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("plain")
    assert read_file(tmp_path / "file") == b"plain"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for name in ("pipe", "link", "socket"):
        with pytest.raises(OSError, match="is a link" if name == "link" else "is not a file") as error:
            read_file(tmp_path / name)
        assert error.value.filename == str(tmp_path / name)
    assert read_file(tmp_path / "link", follow=True) == b"plain"
    with pytest.raises(OSError, match="is a link"):
        open_file(tmp_path / "link", os.O_WRONLY | os.O_TRUNC)
    assert (tmp_path / "file").read_text() == "plain"


def test_of_several_that_fill_folders_of_one_name_the_first_gets_it(tmp_path: Path) -> None:
    for round_ in range(10):
        place = tmp_path / f"round-{round_}"

        def fill(number: int, place: Path = place) -> None:
            with new_folder(place) as beside:
                write_whole(beside / "who", str(number).encode())
                write_whole(beside / "again", str(number).encode())

        refused = at_once(4, fill)
        assert [type(error) for error in refused] == [RunError] * 3
        assert all("exists already" in str(error) for error in refused)
        assert (place / "who").read_text() == (place / "again").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"round-{number}" for number in range(10))


def fail_half_way(place: Path) -> None:
    with new_folder(place) as beside:
        write_whole(beside / "file", b"half")
        raise ZeroDivisionError


def test_a_folder_that_could_not_be_filled_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_half_way(tmp_path / "a" / "b" / "c")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_made_anew_is_not_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command opens another's folder before that holds it, a third removes it, and its owner makes it again."""
    owned, flock = tmp_path / ".o.0123456789abcdef.partial", fcntl.flock
    owned.mkdir()

    def after_a_third_command(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            owned.rename(tmp_path / "removed")
            owned.mkdir()
            (owned / "experiment.toml").write_text("theirs")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_a_third_command)
    with new_folder(tmp_path / "o"):
        pass
    assert (owned / "experiment.toml").read_text() == "theirs"


def test_only_abandoned_folders_of_ours_are_removed(tmp_path: Path) -> None:
    theirs = [".o.partial", ".o.1234.partial", ".other.0123456789abcdef.partial"]
    for name in (*theirs, ".o.0123456789abcdef.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("precious")
    (tmp_path / ".o.00000000000000ff.partial").symlink_to(tmp_path / ".o.partial")
    with new_folder(tmp_path / "o") as mine:
        with pytest.raises(ZeroDivisionError):
            fail_half_way(tmp_path / "o")  # while the first one is filled
        assert mine.is_dir()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*theirs, ".o.00000000000000ff.partial", "o"}
    assert all((tmp_path / name / "thesis.txt").exists() for name in theirs)

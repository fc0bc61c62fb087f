"""Files and folders that appear whole or not at all; only plain files are read, and no link is followed."""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from manyheads.errors import RunError

# The name of what is still being written: the final name, and a part that nobody else has.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.partial", re.DOTALL)
GIVE_ANOTHER = "remove it, or give another folder (on the command line: --out)"
LONGEST_NAME = 200  # bytes; file systems take 255, and a temporary name is longer


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears whole or not at all, even if the machine stops in between.

    A file or a link of that name is replaced; what a link points at stays as it is.
    """
    beside = temporary(path)
    with path_in_errors(path):
        _refuse_special_file(path)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            try:
                write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        _sync_folder(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write with one system call, unless the disk takes only a part."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def read_file(path: Path, *, follow: bool = False) -> bytes:
    """Return the content of a plain file; a pipe, a device or (without `follow`) a link is an error."""
    with path_in_errors(path), os.fdopen(open_file(path, os.O_RDONLY, follow=follow), "rb") as file:
        return file.read()


def open_file(path: Path, flags: int, *, follow: bool = False) -> int:
    """Open a plain file, and nothing else: a pipe would block, a link may lead anywhere."""
    with path_in_errors(path):
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(path, follow_symlinks=follow).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "is a link" if stat.S_ISLNK(mode) else "is not a file")
        no_follow = 0 if follow else os.O_NOFOLLOW  # it may have become a link since
        return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | no_follow, 0o644)


def open_data(path: Path) -> BinaryIO:
    """Open a plain file, or the one that a link leads to, for reading."""
    return os.fdopen(open_file(path, os.O_RDONLY, follow=True), "rb")


def refuse_link(path: Path) -> None:
    """Refuse a link: what would be written or removed through it lies elsewhere."""
    if path.is_symlink():
        raise RunError(f"{path}: is a link, which is not followed; replace it by what it points at")


@contextlib.contextmanager
def path_in_errors(path: Path) -> Iterator[None]:
    """Make errors of the system name this path; those of writing name none, others a temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill, which gets its name at the end; if anything fails, nothing is left behind.

    Nobody else fills the same one. Of several with one final name, the first gets it and the others are refused.
    """
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    with path_in_errors(path):
        try:
            if missing:
                path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            with _held_folder(path) as beside:
                yield beside
                _rename(beside, path)
            _sync_folder(path.parent)
        except BaseException:
            for folder in missing:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise


def temporary(path: Path) -> Path:
    """Return a name in the same folder that nobody else has."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")


def is_plain_name(name: str) -> bool:
    """Tell whether a name is that of one file or folder: it leads nowhere else, and a terminal can show it.

    >>> [is_plain_name(name) for name in ("client-0", "Zoë's ward", "../x", "/etc", "..", "a\\nb")]
    [True, True, False, False, False, False]
    """
    short = name.isprintable() and 0 < len(name.encode()) <= LONGEST_NAME
    return short and "/" not in name and name not in (".", "..")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_special_file(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise FileExistsError(errno.EEXIST, "is there and is not a file; give another name")


@contextlib.contextmanager
def _held_folder(path: Path) -> Iterator[Path]:
    """Make a folder with a temporary name and lock it, so that nobody takes it for abandoned."""
    beside, held = temporary(path), -1
    while held < 0:
        beside.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # somebody removed it before it was locked
            held = os.open(beside, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(held, fcntl.LOCK_EX)
            if not beside.is_dir():
                os.close(held)
                held = -1
    try:
        yield beside
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    finally:
        os.close(held)


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary folders of commands that were killed before they had filled a folder of this name."""
    for other in path.parent.iterdir():
        found = TEMPORARY.fullmatch(other.name)
        if found is None or found["name"] != path.name or other.is_symlink() or not other.is_dir():
            continue
        with contextlib.suppress(OSError):
            held = os.open(other, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A third command may have removed it before, and its owner may have made it anew.
                if os.path.samestat(os.fstat(held), other.stat()):
                    shutil.rmtree(other)
            finally:
                os.close(held)


def _rename(beside: Path, path: Path) -> None:
    try:
        os.replace(beside, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise RunError(f"{path}: exists already; {GIVE_ANOTHER}") from None
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

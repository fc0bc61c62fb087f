"""The mark that our pictures carry: a picture without it is somebody's own, and is not replaced."""

import os
from pathlib import Path

from manyheads.errors import RunError
from manyheads.files import open_file
from manyheads.runs.remove import ADVICE

MARK = {"Software": "manyheads"}  # as matplotlib takes it
IN_FILE = b"tEXtSoftware\0manyheads"  # as a PNG file holds it
BEGINNING = 4_096  # bytes, among which the mark is


def check_replaceable(picture: Path) -> None:
    """Refuse to replace a file that is there already and is no picture of ours."""
    if os.path.lexists(picture) and not _is_ours(picture):
        raise RunError(f"{picture}: is not a picture that manyheads drew, so it is left as it is; {ADVICE}")


def _is_ours(picture: Path) -> bool:
    try:
        descriptor = open_file(picture, os.O_RDONLY)
    except OSError:  # a link, a folder or a pipe
        return False
    with os.fdopen(descriptor, "rb") as file:
        return IN_FILE in file.read(BEGINNING)

"""Removing the files that a run's saves made in `checkpoints`: whatever else lies there is somebody's own.

The manifest names the files of the last save. A save under way has first noted the names of its own files, and of those
of the previous save, in saving.json.
"""

import contextlib
import json
from collections.abc import Collection
from pathlib import Path

from manyheads.errors import RunError
from manyheads.files import TEMPORARY, read_file, refuse_link, write_whole
from manyheads.runs.manifest import CHECKPOINTS, FILE_NAME, MANIFEST, Manifest

SAVING = "saving.json"
MADE = (MANIFEST, SAVING)  # in addition to the files that these name


def note_names(checkpoints: Path, names: Collection[str]) -> None:
    """Write down which files a save is about to make or remove."""
    write_whole(checkpoints / SAVING, json.dumps(sorted(names)).encode())


def remove_checkpoints(run: Path) -> None:
    """Remove the last save of a run and the files that it names; if stopped half-way, call it again."""
    checkpoints = run / CHECKPOINTS
    refuse_link(checkpoints)
    if not checkpoints.is_dir():
        return
    names = saved_names(checkpoints)
    with contextlib.suppress(OSError):  # on a full disk, removing what the manifest names is still possible
        note_names(checkpoints, names)
    (checkpoints / MANIFEST).unlink(missing_ok=True)
    remove_files(checkpoints, names)
    with contextlib.suppress(OSError):
        checkpoints.rmdir()


def saved_names(checkpoints: Path) -> set[str]:
    """Return the names of all files that saves of this run made."""
    with contextlib.suppress(RunError):
        return noted_names(checkpoints) | Manifest.unseal(checkpoints / MANIFEST).files.keys()
    return noted_names(checkpoints)


def noted_names(checkpoints: Path) -> set[str]:
    """Return the names that an unfinished save has noted."""
    try:
        noted = json.loads(read_file(checkpoints / SAVING))
        return {name for name in noted if FILE_NAME.fullmatch(name)}
    except (OSError, ValueError, TypeError, RecursionError):
        return set()


def remove_files(checkpoints: Path, names: Collection[str]) -> None:
    """Remove the plain files with these names, and half-written ones."""
    for path in sorted(checkpoints.iterdir()):
        half = TEMPORARY.fullmatch(path.name)
        ours = path.name in names if half is None else half["name"] in MADE or FILE_NAME.fullmatch(half["name"])
        if ours and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    (checkpoints / SAVING).unlink(missing_ok=True)  # last, because it holds the names

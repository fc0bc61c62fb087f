"""Which files of a run's `checkpoints` its saves made, and removing them: what else lies there is somebody's own.

A save is known by its manifest; one that is under way has first noted the names of its files in saving.json, beside
those of the save before.
"""

import contextlib
import json
from collections.abc import Collection
from pathlib import Path

from manyheads.errors import RunError
from manyheads.files import TEMPORARY, read_file, refuse_link, write_whole
from manyheads.runs.manifest import CHECKPOINTS, FILE_NAME, MANIFEST, Manifest

SAVING = "saving.json"
MADE = (MANIFEST, SAVING)  # beside the files that these name


def note_names(checkpoints: Path, names: Collection[str]) -> None:
    """Write down which files a save makes or lets go, before it does."""
    write_whole(checkpoints / SAVING, json.dumps(sorted(names)).encode())


def remove_checkpoints(run: Path) -> None:
    """Remove the last save of a run, and the files that it names; stopped half-way, the same call goes on."""
    checkpoints = run / CHECKPOINTS
    refuse_link(checkpoints)
    if not checkpoints.is_dir():
        return
    names = saved_names(checkpoints)
    with contextlib.suppress(OSError):  # where the disk is full, less is still to be had
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
    """Return the names that a save which did not come to its end has noted."""
    try:
        noted = json.loads(read_file(checkpoints / SAVING))
        return {name for name in noted if FILE_NAME.fullmatch(name)}
    except (OSError, ValueError, TypeError, RecursionError):
        return set()


def remove_files(checkpoints: Path, names: Collection[str]) -> None:
    """Remove plain files of these names, and what is half written."""
    for path in sorted(checkpoints.iterdir()):
        half = TEMPORARY.fullmatch(path.name)
        ours = path.name in names if half is None else half["name"] in MADE or FILE_NAME.fullmatch(half["name"])
        if ours and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    (checkpoints / SAVING).unlink(missing_ok=True)  # last, because it says the names

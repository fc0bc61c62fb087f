"""Removing a run, file by file: only what it made itself. What somebody else put into its folder stays."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from manyheads.errors import RunError
from manyheads.files import TEMPORARY, refuse_link
from manyheads.runs.manifest import CHECKPOINTS
from manyheads.runs.metrics import MetricsFile
from manyheads.runs.saved_files import MADE, remove_checkpoints, saved_names

# In this order: a folder without experiment.toml is not a run.
FILES = ("metrics.jsonl", "relations.json", "evaluation.json", "trace.json", "summary.json", "experiment.toml")
PICTURES = ("accuracy.png", "losses.png", "split.png", "hops.png", "matrix.png", "taught.png")

ADVICE = "move it away, or give another folder (on the command line: --out)"


def check_removable(folder: Path) -> None:
    """Refuse a run whose folder holds anything that the run did not make, and a run in progress."""
    refuse_link(folder)
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "experiment.toml").is_file()):
        raise RunError(f"{folder}: is not a run, so it is left as it is; {ADVICE}")
    for path in _others(folder):
        raise RunError(f"{path}: was not made by this run, so {folder} is left as it is; {ADVICE}")
    if (folder / "metrics.jsonl").exists():
        MetricsFile(folder / "metrics.jsonl").close()


def remove_run(folder: Path) -> None:
    """Remove what a run made, and its folder if nothing else lies there."""
    refuse_link(folder)
    remove_checkpoints(folder)
    for path in (*_ours(folder / "plots", PICTURES), *_ours(folder, FILES)):
        path.unlink(missing_ok=True)
    for empty in (folder / "plots", folder):
        with contextlib.suppress(OSError):
            empty.rmdir()


def _others(folder: Path) -> Iterator[Path]:
    """Yield everything in a run's folder that the run did not make."""
    inside = {folder / "plots": PICTURES, folder / CHECKPOINTS: (*saved_names(folder / CHECKPOINTS), *MADE)}
    folders = [path for path in inside if path.is_dir() and not path.is_symlink()]
    for place, names in ((folder, FILES), *((path, inside[path]) for path in folders)):
        ours = {*_ours(place, names), *folders}
        yield from (path for path in sorted(place.iterdir()) if path not in ours)


def _ours(place: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the plain files that have one of these names, or were being written under one."""
    if place.is_symlink() or not place.is_dir():
        return []
    found = {path: TEMPORARY.fullmatch(path.name) for path in place.iterdir()}
    named = {path: half["name"] if half else path.name for path, half in found.items()}
    ours = [path for path in found if named[path] in names and path.is_file() and not path.is_symlink()]
    return sorted(ours, key=lambda path: names.index(named[path]))

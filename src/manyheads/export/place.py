"""Where exports go unless told."""

from pathlib import Path

from manyheads.errors import RunError
from manyheads.files import is_plain_name, refuse_link
from manyheads.runs.read import read_summary


def default_place(folder: Path, client: int) -> Path:
    """Return where a client's model goes unless told: into the run folder, and nowhere else, whatever its name is."""
    name = read_summary(folder).clients[client].name
    if not (isinstance(name, str) and is_plain_name(name)):
        raise RunError(f"{folder}: client {client} has a name that is not that of a folder; give a folder with --out")
    refuse_link(folder / "exports")
    return folder / "exports" / name

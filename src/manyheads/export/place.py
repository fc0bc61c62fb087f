"""The folder where exports go by default."""

from pathlib import Path

from manyheads.errors import RunError
from manyheads.files import is_plain_name, refuse_link
from manyheads.runs.read import read_summary


def default_folder(folder: Path, client: int) -> Path:
    """Return the default folder for a client's model: inside the run folder, whatever the client's name is."""
    name = read_summary(folder).clients[client].name
    if not (isinstance(name, str) and is_plain_name(name)):
        raise RunError(f"{folder}: the name of client {client} cannot name a folder; give a folder with --out")
    refuse_link(folder / "exports")
    return folder / "exports" / name

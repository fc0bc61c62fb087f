"""Which run folders and exports that name code this user made here: a record that no such folder can bring along.

It lies in the user's own state folder, a file for each: where that folder is, a hash of what it asks for, and the files
that its code came from. A folder of somebody else's that takes its place asks for something else, or finds its code
elsewhere; one that was moved has no record where it is now.
"""

import json
import os
from pathlib import Path

from manyheads.files import digest, write_whole
from manyheads.imports import Code, Trust

PLACE = "MANYHEADS_STATE"  # the environment variable that names another state folder


def remember(folder: Path, asks_for: str, code: Code) -> bool:
    """Record that this user made a folder that asks for this (a hash), with code from these files.

    Return whether that could be written down.
    """
    try:
        state = _state_folder()
        state.parent.mkdir(parents=True, exist_ok=True)
        state.mkdir(mode=0o700, exist_ok=True)
        state.chmod(0o700)
        record = {"folder": os.path.realpath(folder), "asks_for": asks_for, "code": code}
        write_whole(_file(state, folder), json.dumps(record).encode())
    except (OSError, RuntimeError):  # there is no home, or nothing can be written there
        return False
    return True


def trust_in(folder: Path, asks_for: str, *, said: bool) -> Trust:
    """What may be imported for a folder that asks for this: what it was made with here, or what the user `said`."""
    return Trust(str(folder), _code_of(folder, asks_for), said)


def _code_of(folder: Path, asks_for: str) -> Code:
    try:
        state = _state_folder()
        record = json.loads(_file(state, folder).read_bytes())
        if not _is_the_user_s_alone(state) or record["asks_for"] != asks_for:
            return {}
        return {name: tuple(files) for name, files in record["code"].items()}
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError):
        return {}  # no record, no home, or a record that is damaged


def _state_folder() -> Path:
    """MANYHEADS_STATE, or below XDG_STATE_HOME; a place that is not absolute may have come with strangers' files."""
    named, states = Path(os.environ.get(PLACE, "")), Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named
    return (states if states.is_absolute() else Path.home() / ".local" / "state") / "manyheads"


def _file(state: Path, folder: Path) -> Path:
    return state / f"{digest(os.fsencode(os.path.realpath(folder)))}.json"


def _is_the_user_s_alone(state: Path) -> bool:
    found = state.stat()
    return found.st_uid == os.geteuid() and found.st_mode & 0o022 == 0

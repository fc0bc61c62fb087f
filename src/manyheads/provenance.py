"""The record of run folders and exports with code of their own that this user made here; no such folder can bring one.

It is in the user's own state folder, a file for each: where that folder is, a hash of what it asks for, and the files
that its code came from. A stranger's folder in its place asks for something else, or finds its code elsewhere; a folder
that was moved has no record where it is now.
"""

import json
import os
from pathlib import Path

from manyheads.files import digest, write_whole
from manyheads.imports import Code, Trust

STATE_VARIABLE = "MANYHEADS_STATE"  # the environment variable that names another state folder


def record_code(folder: Path, asks_for: str, code: Code) -> bool:
    """Record that this user made a folder that asks for this (a hash), with code from these files.

    Return whether the record could be written.
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


def recorded_trust(folder: Path, asks_for: str, *, trust_code: bool) -> Trust:
    """Return what may be imported for a folder that asks for this: the recorded code or, with `trust_code`, any."""
    return Trust(str(folder), _code_of(folder, asks_for), trust_code)


def _code_of(folder: Path, asks_for: str) -> Code:
    try:
        state = _state_folder()
        record = json.loads(_file(state, folder).read_bytes())
        if not _only_user_writes(state) or record["asks_for"] != asks_for:
            return {}
        return {name: tuple(files) for name, files in record["code"].items()}
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError):
        return {}  # no record, no home folder, or a damaged record


def _state_folder() -> Path:
    """Return MANYHEADS_STATE, or a folder below XDG_STATE_HOME; a relative path might lead into strangers' files."""
    named, states = Path(os.environ.get(STATE_VARIABLE, "")), Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named
    return (states if states.is_absolute() else Path.home() / ".local" / "state") / "manyheads"


def _file(state: Path, folder: Path) -> Path:
    return state / f"{digest(os.fsencode(os.path.realpath(folder)))}.json"


def _only_user_writes(state: Path) -> bool:
    found = state.stat()
    return found.st_uid == os.geteuid() and found.st_mode & 0o022 == 0

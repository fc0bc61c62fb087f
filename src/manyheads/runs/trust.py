"""Trust in the code that a run folder names: recorded when a run is made, asked before its code is imported."""

from pathlib import Path

from manyheads.imports import Trust
from manyheads.provenance import record_code, recorded_trust
from manyheads.runs.manifest import digest_of_keys


def trust_in_run(folder: Path, *, trust_code: bool) -> Trust:
    """Return which code may be imported for a run folder: what it was made with here, or all if the user says so."""
    return recorded_trust(folder, _asked_by(folder), trust_code=trust_code)


def remember_run(folder: Path, trust: Trust) -> bool:
    """Record that this user made a run here, if it names code; return whether the record could be written."""
    return not trust.imported or record_code(folder, _asked_by(folder), trust.imported)


def _asked_by(folder: Path) -> str:
    return digest_of_keys(folder / "experiment.toml")

"""Trust in the code that a run folder names: recorded when a run is made, asked before its code is imported."""

from pathlib import Path

from manyheads.imports import Trust
from manyheads.made_here import remember, trust_in
from manyheads.runs.manifest import digest_of_keys


def trust_in_run(folder: Path, *, said: bool) -> Trust:
    """Return which code may be imported for a run folder: what it was made with here, or what the user `said`."""
    return trust_in(folder, _asked_by(folder), said=said)


def remember_run(folder: Path, trust: Trust) -> bool:
    """Record that this user made a run here, if it names code; return whether the record could be written."""
    return not trust.own or remember(folder, _asked_by(folder), trust.own)


def _asked_by(folder: Path) -> str:
    return digest_of_keys(folder / "experiment.toml")

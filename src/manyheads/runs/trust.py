"""Code that a run folder names: recorded when the run is made, and imported for its folder only where it was."""

from pathlib import Path

from manyheads.imports import Trust
from manyheads.made_here import remember, trust_in
from manyheads.runs.manifest import digest_of_keys


def trust_in_run(folder: Path, *, said: bool) -> Trust:
    """Return what may be imported for a run folder: what it was made with here, or what the user `said`."""
    return trust_in(folder, _asked_by(folder), said=said)


def remember_run(folder: Path, trust: Trust) -> bool:
    """Record that this user made a run here, if it names code; return whether that could be written down."""
    return not trust.own or remember(folder, _asked_by(folder), trust.own)


def _asked_by(folder: Path) -> str:
    return digest_of_keys(folder / "experiment.toml")

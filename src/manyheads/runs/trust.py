"""Trust in what a run folder names, code and data to fetch: recorded when a run is made, asked before it is used."""

from pathlib import Path

from manyheads.imports import Trust
from manyheads.provenance import record_code, recorded_trust
from manyheads.runs.manifest import digest_of_keys


def trust_in_run(folder: Path, *, trust_code: bool) -> Trust:
    """Return what may be imported and fetched for a run: what it was made with here, or with `trust_code` all."""
    return recorded_trust(folder, _asked_by(folder), trust_code=trust_code)


def remember_run(folder: Path, trust: Trust) -> bool:
    """Record that this user made a run here, if it names code or fetches data; return whether that was possible."""
    return not trust.imported or record_code(folder, _asked_by(folder), trust.imported)


def _asked_by(folder: Path) -> str:
    return digest_of_keys(folder / "experiment.toml")

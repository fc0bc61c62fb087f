"""A checkpoint's manifest: what was saved, and the checksum of each of its files."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from manyheads.errors import START_AGAIN, RunError
from manyheads.files import digest

FORMAT = 3


class ClientRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    state: str
    pool: list[str]
    bytes_received: int


class Manifest(BaseModel):
    """A checkpoint: what was saved, and the checksum of each of its files."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: int
    experiment: str
    data: str
    step: int
    seconds: float
    metrics_bytes: int
    metrics_sha256: str
    clients: list[ClientRecord]
    files: dict[str, str]

    def seal(self) -> str:
        """Its text, with a checksum of its own."""
        body = self.model_dump()
        return json.dumps({**body, "sha256": digest(_canonical(body))}, indent=1)

    @classmethod
    def unseal(cls, path: Path) -> "Manifest":
        try:
            body = json.loads(path.read_bytes())
            checksum = body.pop("sha256")
            manifest = cls.model_validate(body)
        except (ValueError, KeyError, AttributeError, TypeError, ValidationError, OSError):
            raise RunError(f"{path}: not a readable checkpoint; {START_AGAIN}") from None
        if checksum != digest(_canonical(manifest.model_dump())):
            raise RunError(f"{path}: was changed after it was written; {START_AGAIN}")
        if any(Path(name).name != name for name in manifest.files):
            raise RunError(f"{path}: names a file outside its own folder; {START_AGAIN}")
        if manifest.format != FORMAT:
            raise RunError(f"{path}: has format {manifest.format}; this version of manyheads reads format {FORMAT}")
        return manifest


def digest_of_keys(path: Path) -> str:
    """Return a hash of the keys that stand in an experiment's file: one that a later version adds changes nothing.

    How often to save and where the data lie are not part of it; of what is in them there is another hash.
    """
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    values.get("training", {}).pop("save_seconds", None)
    data = values.get("data", {})
    for part in (data, data.get("public")):
        if isinstance(part, dict):
            part.pop("path", None)
    return digest(json.dumps(values, sort_keys=True).encode())


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True).encode()

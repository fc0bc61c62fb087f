"""The manifest of a checkpoint: what was saved, and the checksum of each file."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manyheads.errors import START_AGAIN, RunError
from manyheads.files import digest, read_file, refuse_link
from manyheads.runs.read import read_experiment

CHECKPOINT_FORMAT = 3
CHECKPOINTS, MANIFEST = "checkpoints", "manifest.json"
FILE_NAME = re.compile(r"(state|snapshot)-([0-9]{8,15})-client-([0-9]{4,9})\.safetensors")

Number = Annotated[int, Field(ge=0, lt=2**53)]
Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def state_name(step: int, client: int) -> str:
    return f"state-{step:08d}-client-{client:04d}.safetensors"


class ClientRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    state: str
    pool: list[str]
    bytes_received: Number
    refused: Number = 0  # others' answers that could not be used


class Manifest(BaseModel):
    """The manifest of a checkpoint: what was saved, and the checksum of each file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: int
    experiment: str
    data: str
    step: Number
    seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    metrics_bytes: Number
    metrics_sha256: Checksum
    clients: list[ClientRecord]
    files: dict[str, Checksum]

    def seal(self) -> str:
        """Return the text of the manifest, which ends with a checksum of the rest."""
        body = self.model_dump(exclude_defaults=True)  # older saves lack what was added later
        return json.dumps({**body, "sha256": digest(_canonical(body))}, indent=1)

    @classmethod
    def unseal(cls, path: Path) -> "Manifest":
        """Read a manifest and check it before anything that it names is opened."""
        try:
            body = json.loads(read_file(path))
            checksum = body.pop("sha256")
            if type(body["format"]) is int and body["format"] != CHECKPOINT_FORMAT:
                raise RunError(
                    f"{path}: has format {body['format']}; this version of manyheads reads format {CHECKPOINT_FORMAT}"
                )
            manifest = cls.model_validate(body)
        except OSError as error:
            raise RunError(f"{path}: cannot be read: {error.strerror}; {START_AGAIN}") from None
        except (ValueError, KeyError, AttributeError, TypeError, ValidationError, RecursionError):
            raise RunError(f"{path}: not a readable checkpoint; {START_AGAIN}") from None
        if checksum != digest(_canonical(body)):
            raise RunError(f"{path}: was changed after it was written; {START_AGAIN}")
        if not manifest.names_its_own_files():
            raise RunError(f"{path}: names files that do not belong to its clients; {START_AGAIN}")
        return manifest

    def names_its_own_files(self) -> bool:
        """Return whether its files are all clients' states at this step, and earlier snapshots of these clients."""
        shown = {name for client in self.clients for name in client.pool}
        states = [state_name(self.step, number) for number in range(len(self.clients))]
        if [client.state for client in self.clients] != states or self.files.keys() != {*states, *shown}:
            return False
        found = [FILE_NAME.fullmatch(name) for name in shown]
        clients, last = range(len(self.clients)), self.step
        return all(one and one[1] == "snapshot" and int(one[2]) <= last and int(one[3]) in clients for one in found)


def read_manifest(folder: Path, *, ended: bool = False) -> Manifest:
    """Return the last save of a run after checking that it belongs to the experiment.toml beside it.

    With `ended`, it must be the save at the end of the run.
    """
    experiment, path = read_experiment(folder), folder / CHECKPOINTS / MANIFEST
    refuse_link(path.parent)
    if not os.path.lexists(path):
        raise RunError(f"{folder}: holds no weights ({CHECKPOINTS}/{MANIFEST} is gone); run the experiment again")
    manifest = Manifest.unseal(path)
    if manifest.experiment != digest_of_keys(folder / "experiment.toml"):
        raise RunError(
            f"{path}: is a checkpoint of a different experiment than {folder / 'experiment.toml'}; "
            "put the original file back, or start a new run"
        )
    steps = experiment.training.steps
    if len(manifest.clients) != experiment.clients or manifest.step > steps:
        raise RunError(
            f"{path}: holds {len(manifest.clients)} clients at step {manifest.step}, "
            f"the experiment has {experiment.clients} and {steps} steps; {START_AGAIN}"
        )
    if ended and manifest.step < steps:
        raise RunError(
            f"{path}: was saved at step {manifest.step} of {steps}, not at the end of the run; {START_AGAIN}"
        )
    return manifest


def last_save(folder: Path) -> Manifest | None:
    """Return the last save of a run, or None if it was stopped before the first."""
    return read_manifest(folder) if os.path.lexists(folder / CHECKPOINTS / MANIFEST) else None


def digest_of_keys(path: Path) -> str:
    """Return a hash of the keys in an experiment's file, which a key that a later version adds does not change.

    How often to save and where the data lie are left out; the data themselves have a hash of their own.
    """
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    values.get("training", {}).pop("save_seconds", None)
    data = values.get("data", {})
    for part in (data, data.get("public")):
        if isinstance(part, dict):
            part.pop("path", None)
    return digest(json.dumps(values, sort_keys=True, default=str).encode())  # TOML knows dates


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True).encode()

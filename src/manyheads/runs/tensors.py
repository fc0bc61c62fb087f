"""Reading the saved tensors of a run folder."""

from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from manyheads.errors import START_AGAIN, ConfigurationError, RunError
from manyheads.files import digest
from manyheads.runs.manifest import Manifest


def read_client_values(folder: Path, client: int) -> tuple[dict[str, Tensor], Manifest]:
    """The saved tensors of one client at the last save."""
    manifest = Manifest.unseal(folder / "checkpoints" / "manifest.json")
    if not 0 <= client < len(manifest.clients):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(manifest.clients) - 1}")
    name = manifest.clients[client].state
    return read_tensors(folder / "checkpoints" / name, manifest.files[name]), manifest


def read_tensors(path: Path, checksum: str) -> dict[str, Tensor]:
    """A safetensors file that is what it was when it was written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}; {START_AGAIN}") from None
    if digest(content) != checksum:
        raise RunError(f"{path}: is damaged or was changed (its checksum differs); {START_AGAIN}")
    try:
        return dict(safetensors.torch.load(content))
    except safetensors.SafetensorError as error:
        raise RunError(f"{path}: not a safetensors file: {error}") from None

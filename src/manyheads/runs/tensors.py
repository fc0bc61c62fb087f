"""Reading the saved tensors of a run folder, or of an exported model."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from manyheads.errors import START_AGAIN, ConfigurationError, RunError, first_line
from manyheads.files import digest, read_file
from manyheads.runs.manifest import CHECKPOINTS, Manifest

UNREADABLE = (safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError)


def read_client_values(folder: Path, manifest: Manifest, client: int) -> dict[str, Tensor]:
    """Return the tensors of one client at the last save."""
    if not 0 <= client < len(manifest.clients):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(manifest.clients) - 1}")
    name = manifest.clients[client].state
    return read_state(folder / CHECKPOINTS / name, manifest.files[name])


def read_state(path: Path, checksum: str) -> dict[str, Tensor]:
    """Return the saved tensors of a client or a snapshot; weights that are not finite are refused."""
    tensors = read_tensors(path, checksum)
    check_finite({"values": tensors["values"]} if "values" in tensors else {}, path)
    return tensors


def read_tensors(path: Path, checksum: str, *, follow: bool = False) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file whose checksum is the one that was written down."""
    try:
        content = read_file(path, follow=follow)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}; {START_AGAIN}") from None
    except MemoryError:
        raise RunError(f"{path}: does not fit into memory") from None
    if digest(content) != checksum:
        raise RunError(f"{path}: is damaged or was changed (its checksum differs); {START_AGAIN}")
    try:
        return dict(safetensors.torch.load(content))
    except UNREADABLE as error:
        raise RunError(f"{path}: not a safetensors file: {first_line(error)}") from None


def check_fits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: Path) -> None:
    """Refuse tensors that do not fit a model."""
    for name, own in expected.items():
        given = found.get(name)
        if given is None or given.shape != own.shape or given.dtype != own.dtype:
            has = "is missing" if given is None else f"is {_shown(given)}"
            raise RunError(f'{where}: does not fit its model: "{name}" {has}, needed: {_shown(own)}')


def check_finite(tensors: Mapping[str, Tensor], where: Path) -> None:
    """Refuse weights that are not finite: whatever such a model was asked, it would answer nonsense."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise RunError(f'{where}: "{name}" holds a number that is not finite; {START_AGAIN}')


def _shown(tensor: Tensor) -> str:
    return f"{' x '.join(map(str, tensor.shape)) or 'one'} {str(tensor.dtype).removeprefix('torch.')}"

"""Pretrained weights of a backbone, from a local safetensors file. Nothing is downloaded and no pickle is loaded."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from manyheads.errors import ConfigurationError, first_line
from manyheads.files import open_data
from manyheads.models.external import shape_text

CLASSIFIER = ("fc.", "classifier.", "head.", "heads.")  # what others put behind a backbone: here heads are fresh
NOT_THE_BACKBONE = ("maps.", "own statistics ")  # in an exported model of ours


@torch.no_grad()
def load_weights(backbone: nn.Module, path: str, name: str) -> None:
    """Fill in every number of a backbone from a file, by name; `name` is what messages call the backbone."""
    own = {key: value for key, value in backbone.state_dict().items() if isinstance(value, Tensor)}
    found = _fitting(_read(path), own)
    problems = [
        *(f'"{key}" is {_shown(found[key])}, {name} here needs {_shown(own[key])}' for key in _differing(found, own)),
        *(f'has no "{key}" ({_shown(own[key])}), which {name} needs' for key in _missing(found, own)),
        *(f'holds "{key}" ({_shown(found[key])}), which {name} does not have' for key in found if key not in own),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigurationError(f'model.weights = "{path}": {problems[0]}{more}{_advice(found, own)}')
    for key, tensor in found.items():
        own[key].copy_(tensor)
        if own[key].is_floating_point() and not torch.isfinite(own[key]).all():
            raise ConfigurationError(f'model.weights = "{path}": "{key}" holds a number that is not finite')


def _read(path: str) -> dict[str, Tensor]:
    suffix = Path(path).suffix.lower()
    if suffix != ".safetensors":
        there = f"{Path(path).stem}.safetensors"
        raise ConfigurationError(
            f'model.weights = "{path}": not a safetensors file; convert a PyTorch file once by '
            f'safetensors.torch.save_file(torch.load("{Path(path).name}", weights_only=True), "{there}")'
        )
    try:
        open_data(Path(path)).close()  # a pipe would never end
        return dict(safetensors.torch.load_file(path))
    except OSError as error:
        reason = error.strerror or "no such file"
        raise ConfigurationError(f'model.weights = "{path}": cannot be read: {reason}') from None
    except safetensors.SafetensorError as error:
        raise ConfigurationError(f'model.weights = "{path}": not a safetensors file: {first_line(error)}') from None


def _fitting(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's tensors under the backbone's names, without those of a classifier."""
    if not found.keys() & own.keys():  # an exported model of ours holds its backbone under that name
        named = {key: tensor for key, tensor in found.items() if not key.startswith(NOT_THE_BACKBONE)}
        found = {key.removeprefix("backbone."): tensor for key, tensor in named.items()}
    return {key: tensor for key, tensor in found.items() if key in own or not key.startswith(CLASSIFIER)}


def _differing(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    return [key for key, tensor in found.items() if key in own and tensor.shape != own[key].shape]


def _missing(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """Return what the file does not fill in. Tied weights are one, and counts of BatchNorm do not matter."""
    filled = {own[key].data_ptr() for key in found if key in own}
    return [
        key
        for key, tensor in own.items()
        if key not in found and not key.endswith("num_batches_tracked") and tensor.data_ptr() not in filled
    ]


def _advice(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """Return the most likely reason, as advice."""
    if found and all(key.startswith("module.") for key in found):
        return '; its names begin with "module.": save it without that'
    theirs, ours = found.get("conv1.weight"), own.get("conv1.weight")
    if theirs is None or ours is None or theirs.dim() != 4 or ours.dim() != 4:
        return ""
    if theirs.shape[-1] != ours.shape[-1]:
        return f'; model.stem = "{"large" if theirs.shape[-1] == 7 else "small"}" has that'
    if theirs.shape[0] != ours.shape[0]:
        return f"; model.width = {theirs.shape[0]} has that"
    return f"; data.channels = {theirs.shape[1]} has that" if theirs.shape[1] != ours.shape[1] else ""


def _shown(tensor: Tensor) -> str:
    return shape_text(tensor.shape)

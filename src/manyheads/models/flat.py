"""The flat tensor: all numbers of a model, of which the module's parameters are views.

So a snapshot is one copy, averaging one mean, the optimizer one update, a checkpoint one array with its layout.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

ALIGNMENT = 16  # elements: every view starts on a cache line


@dataclass(frozen=True)
class Slot:
    """The place of one parameter or buffer in the flat tensor."""

    name: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class FlatState:
    """The numbers of a module in one tensor: trained parameters, frozen ones, and floating-point buffers.

    Memory order (channels_last) is kept. Tied parameters share one slot, because a module names them once. Integer
    buffers cannot live among floats; they stay where they are and are listed in `integers`.

    >>> module = nn.Linear(2, 1)
    >>> _ = FlatState(module).values.fill_(0.5)
    >>> module.bias
    Parameter containing:
    tensor([0.5000], requires_grad=True)
    """

    def __init__(self, module: nn.Module, *, trainable: bool = True) -> None:
        every = list(module.named_parameters())
        parameters = [(name, parameter) for name, parameter in every if parameter.requires_grad]
        frozen = [(name, parameter) for name, parameter in every if not parameter.requires_grad]
        buffers = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
        self.integers = {name: b for name, b in module.named_buffers() if not b.is_floating_point()}
        dtypes = {tensor.dtype for _, tensor in every + buffers}
        if len(dtypes) != 1:
            raise ValueError(f"a model must be of one floating-point type, not {sorted(map(str, dtypes))}")
        parameter_slots, self.parameter_size = _slots(parameters, start=0)
        frozen_slots, self._frozen_end = _slots(frozen, start=self.parameter_size)
        buffer_slots, size = _slots(buffers, start=self._frozen_end)
        self.layout = parameter_slots + frozen_slots + buffer_slots
        self.values = torch.zeros(size, dtype=dtypes.pop(), device=every[0][1].device)
        for slot, (_, tensor) in zip(self.layout, parameters + frozen + buffers, strict=True):
            home = _view(self.values, slot)
            home.copy_(tensor.detach())
            tensor.data = home
        self.gradient = torch.zeros_like(self.parameters) if trainable else self.values.new_empty(0)
        if trainable:
            for slot, (_, parameter) in zip(parameter_slots, parameters, strict=True):
                parameter.grad = _view(self.gradient, slot)

    @property
    def parameters(self) -> Tensor:
        """Return the part of `values` that the optimizer changes."""
        return self.values[: self.parameter_size]

    @property
    def buffers(self) -> Tensor:
        """Return the part of `values` that holds buffers: BatchNorm statistics."""
        return self.values[self._frozen_end :]

    def copy_integers(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.integers.items()}

    @torch.no_grad()
    def load(self, values: Tensor, integers: Mapping[str, Tensor]) -> None:
        """Copy the numbers of a model with the same layout."""
        self.values.copy_(values)
        for name, tensor in self.integers.items():
            tensor.copy_(integers[name])

    @torch.no_grad()
    def take_mean(self, mean: Tensor) -> None:
        """Become the mean of models that started equal. Frozen numbers are skipped: rounding must not move them."""
        self.parameters.copy_(mean[: self.parameter_size])
        self.buffers.copy_(mean[self._frozen_end :])

    def describe(self) -> list[dict[str, object]]:
        """Return the layout as plain values, for a checkpoint."""
        return [asdict(slot) for slot in self.layout]


def _slots(named: Sequence[tuple[str, Tensor]], start: int) -> tuple[tuple[Slot, ...], int]:
    """Return aligned slots for tensors, from `start` on, and where the last one ends."""
    slots = []
    for name, tensor in named:
        slots.append(Slot(name, start, tuple(tensor.shape), _dense_stride(tensor)))
        start += -(-tensor.numel() // ALIGNMENT) * ALIGNMENT
    return tuple(slots), start


def _view(flat: Tensor, slot: Slot) -> Tensor:
    return flat.as_strided(slot.shape, slot.stride, slot.offset)


def _dense_stride(tensor: Tensor) -> tuple[int, ...]:
    """Return the tensor's stride if it covers its memory without gaps (contiguous, channels_last), else contiguous."""
    stride, span = tuple(tensor.stride()), 1
    for step, size in sorted(zip(stride, tensor.shape, strict=True)):
        if size > 1 and step != span:
            return tuple(math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.dim()))
        span *= size
    return stride

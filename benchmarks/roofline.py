"""The least time that a GPU needs for one step of a client: what has to be computed, and what has to be moved.

Counted layer by layer, each at the larger of its two times, at the speeds that `speeds` measures on the GPU itself:

- convolutions and linear layers in bfloat16, three times their operations for the two training batches (forward, both
  gradients), once for the teachers' batch; they read and write their inputs and outputs once in each of these passes;
- BatchNorm with ReLU: forward reads its input twice (statistics, normalisation) and writes its output; backward reads
  input and gradient twice and writes a gradient; with a shortcut three tensors more;
- the optimizer reads values, momentum and gradient and writes values, momentum and the bfloat16 copy.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from manyheads.client.client import Client
from manyheads.models.norm import BatchNorm

BYTES = 2  # of a number in bfloat16
OPTIMIZER_BYTES = 26  # of a parameter
NORM_TENSORS, SHORTCUT_TENSORS, TEACHER_TENSORS = 8, 3, 2


@dataclass(frozen=True)
class Speeds:
    """The speeds that the GPU reaches: operations/s of a large product, bytes/s of a large copy."""

    operations: float
    bytes: float


def speeds(device: torch.device) -> Speeds:
    one = torch.randn(8192, 8192, dtype=torch.bfloat16, device=device)
    large = torch.empty(2**30, dtype=torch.uint8, device=device)
    other = torch.empty_like(large)
    product = _seconds(lambda: one @ one)
    copy = _seconds(lambda: other.copy_(large))
    return Speeds(2 * 8192**3 / product, 2 * 2**30 / copy)


def _seconds(work: object) -> float:
    """Return the seconds of one call, after a few to warm up."""
    assert callable(work)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for _ in range(5):
        work()
    start.record()
    for _ in range(20):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 20 / 1e3


@dataclass(frozen=True)
class Floor:
    seconds: float
    operations: float
    bytes: float


def floor(client: Client, image_shape: tuple[int, int, int], at: Speeds, teachers: int) -> Floor:
    """Return the floor of one step: two batches to train on, and one that `teachers` snapshots predict."""
    training, model = client.training, client.make_model()
    trained, asked = training.batch_size + training.public_batch_size, teachers * training.public_batch_size
    found: list[tuple[float, float]] = []

    def product(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weight = module.get_parameter("weight")
        places = output[0].numel() // output.shape[1]
        moved = BYTES * (inputs[0][0].numel() + output[0].numel())
        operations = 2 * weight.numel() * places
        found.append((operations * (3 * trained + asked), moved * (3 * trained + asked)))

    def norm(module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> None:
        tensors = NORM_TENSORS + (SHORTCUT_TENSORS if "residual" in named else 0)
        found.append((0.0, BYTES * output[0].numel() * (tensors * trained + TEACHER_TENSORS * asked)))

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(product)
        elif isinstance(module, BatchNorm):
            module.register_forward_hook(norm, with_kwargs=True)
    height, width, channels = image_shape
    with torch.no_grad():
        model.eval()(torch.zeros(1, channels, height, width))
    found.append((0.0, OPTIMIZER_BYTES * client.state.parameter_size))
    seconds = sum(max(operations / at.operations, moved / at.bytes) for operations, moved in found)
    return Floor(seconds, sum(o for o, _ in found), sum(b for _, b in found))

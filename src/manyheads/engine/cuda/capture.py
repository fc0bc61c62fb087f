"""Capturing steps in CUDA graphs, and finding out which cannot be captured."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.client.client import Client
from manyheads.errors import first_line


@dataclass(frozen=True)
class CapturedStep:
    """A captured step of all clients, and the number of batches that it takes of each client."""

    captured: torch.cuda.CUDAGraph
    passes: dict[int, int]


def capture(step: Callable[[], None], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Capture a step, after taking two so that kernels are compiled and algorithms chosen."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph


def why_not_captured(step: Callable[[], None], counter_1: Tensor) -> str | None:
    """Return why a step cannot be captured; None if it can."""
    try:
        capture(step)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # whatever external code raises
        torch.cuda.synchronize()
        return first_line(error)
    counter_1.zero_()
    return None


def draws_from_torch(client: Client) -> bool:
    """Return whether a model draws from torch's generator: a graph would draw other numbers than the plain engine."""
    device = client.state.values.device
    values, integers = client.state.values.clone(), client.state.copy_integers()
    two = torch.from_numpy(np.resize(client.private.indices, 2)).to(device)  # BatchNorm may need more than one sample
    images, cuda = client.private.pixels[two], [device.index] if device.type == "cuda" else []

    def state() -> Tensor:
        return torch.cat([torch.get_rng_state(), *(torch.cuda.get_rng_state(index) for index in cuda)])

    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        before = state()
        client.model(images.permute(0, 3, 1, 2).to(values.dtype))
        drawn = not torch.equal(before, state())
    client.state.load(values, integers)
    return drawn

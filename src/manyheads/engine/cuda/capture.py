"""Capturing steps in CUDA graphs, and finding out which cannot be."""

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
    """A step of all clients, and how many batches of each client it takes."""

    captured: torch.cuda.CUDAGraph
    passes: dict[int, int]


def capture(step: Callable[[], None], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Steps are taken before, to compile kernels and to choose algorithms."""
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
    """Why a step cannot be captured; None where it can."""
    try:
        capture(step)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # whatever code of others does
        torch.cuda.synchronize()
        return first_line(error)
    counter_1.zero_()
    return None


def draws_from_torch(client: Client) -> bool:
    """Whether a model draws from torch's generator in training: a graph would not draw what the plain engine does."""
    device = client.state.values.device
    values, integers = client.state.values.clone(), client.state.copy_integers()
    two = torch.from_numpy(np.resize(client.private.indices, 2)).to(device)  # BatchNorm may need more than one
    images, cuda = client.private.pixels[two], [device.index] if device.type == "cuda" else []

    def state() -> Tensor:
        return torch.cat([torch.get_rng_state(), *(torch.cuda.get_rng_state(index) for index in cuda)])

    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        before = state()
        client.model(images.permute(0, 3, 1, 2).to(values.dtype))
        drawn = not torch.equal(before, state())
    client.state.load(values, integers)
    return drawn

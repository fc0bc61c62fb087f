"""Pooling at the same size, compared with PyTorch's average of a padded map; kernels are compared bit by bit."""

import sys
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.models.kernels import same_pool
from manyheads.models.kernels.same_pool import fused_pool
from manyheads.models.same_pool import SamePool, plain_pool
from tests.models import interpreted

# Batch, channels, height, width. The last has more elements than two programs take.
SHAPES = (
    (2, 64, 1, 1), (2, 3, 1, 4), (2, 3, 4, 1), (2, 8, 2, 2), (7, 3, 5, 4), (1, 1, 3, 5), (1, 64, 9, 5),
)  # fmt: skip
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def images(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.randn(shape, device=device).to(dtype).to(memory_format=torch.channels_last)


def with_gradient(pool: Callable[[Tensor], Tensor], x: Tensor, dy: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = pool(x)
    return [y.detach(), *torch.autograd.grad(y, x, dy)]


def bits(x: Tensor) -> Tensor:
    """Return the bits of a tensor, which differ for -0 and 0."""
    return x.cpu().flatten().view(torch.uint8)


def test_at_the_border_it_takes_the_pixels_that_are_there() -> None:
    x = torch.arange(6.0).reshape(1, 1, 2, 3)
    assert SamePool()(x).tolist() == [[[[2.0, 3.0, 3.5], [3.5, 4.5, 5.0]]]]


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_average_of_a_map_with_its_border_repeated(shape: tuple[int, ...]) -> None:
    def padded(x: Tensor) -> Tensor:
        return F.avg_pool2d(F.pad(x, (0, 1, 0, 1), mode="replicate"), 2, stride=1)

    x, dy = (images(shape, torch.float64) for _ in range(2))
    for order in (torch.channels_last, torch.contiguous_format):
        found, wanted = (with_gradient(pool, x.contiguous(memory_format=order), dy) for pool in (SamePool(), padded))
        torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)


def test_triton_is_not_needed_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(same_pool, "compiled", None)
    x, dy = images((2, 3, 5, 4)), images((2, 3, 5, 4))
    for one, two in zip(with_gradient(SamePool(), x, dy), with_gradient(plain_pool, x, dy), strict=True):
        assert torch.equal(bits(one), bits(two))


def values(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Return numbers of which half are zero, of either sign, and some so small that their halves are rounded."""
    x, tiny = images(shape, dtype, device), torch.finfo(dtype).smallest_normal
    which = torch.randint(8, shape, device=device)
    x = torch.where(which < 4, 0.0 * x, x)
    return torch.where(which == 4, tiny * x, x).to(memory_format=torch.channels_last)


def kernels(device: str) -> None:
    """The same bits as PyTorch's own operations on the same device.

    Interpreted, the kernels do not round to bfloat16, they cut off: there, numbers that need no rounding.
    """
    for shape, dtype, _ in product(SHAPES, DTYPES, range(3)):
        x, dy = (values(shape, dtype, device) for _ in range(2))
        if dtype == torch.bfloat16 and device == "cpu":
            x, dy = ((4.0 * each.clamp(-1.0, 1.0)).round() for each in (x, dy))
        found, wanted = with_gradient(fused_pool, x, dy), with_gradient(plain_pool, x, dy)
        for one, two in zip(found, wanted, strict=True):
            assert one.dtype == dtype
            assert one.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(bits(one), bits(two)), (shape, dtype)
        # A gradient may come in another order.
        again = with_gradient(fused_pool, x, dy.contiguous())
        assert torch.equal(bits(again[1]), bits(wanted[1]))


@pytest.mark.interpreted
def test_the_kernels_interpreted() -> None:
    interpreted("tests.models.test_same_pool")


def test_what_the_kernels_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    image = images((4, 3, 2, 2))
    for x in (image.int(), image.contiguous(), image[0], image[:0]):
        with pytest.raises(ValueError, match="not what the kernels can do"):
            fused_pool(x)
    monkeypatch.setattr(same_pool, "MOST", image.numel() - 1)
    with pytest.raises(ValueError, match="not what the kernels can do"):
        fused_pool(image)


@pytest.mark.gpu
def test_the_kernels_on_the_gpu() -> None:
    kernels("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_layer_in_a_graph(dtype: torch.dtype) -> None:
    """A graph is replayed with another input."""
    shape = (6, 8, 9, 10)
    x, dy = (images(shape, dtype, "cuda") for _ in range(2))
    x.requires_grad_()

    def passes(x: Tensor) -> list[Tensor]:
        y: Tensor = SamePool()(x)
        return [y, *torch.autograd.grad(y, x, dy)]

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        passes(x)  # compiles
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = passes(x)
    for _ in range(2):
        x.detach().copy_(images(shape, dtype, "cuda"))
        dy.copy_(images(shape, dtype, "cuda"))
        graph.replay()
        torch.cuda.synchronize()
        wanted = with_gradient(plain_pool, x.detach(), dy)
        assert all(torch.equal(bits(one), bits(two)) for one, two in zip(found, wanted, strict=True))


@pytest.mark.gpu
def test_the_layer_uses_the_kernels_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.Size] = []

    def note(x: Tensor) -> Tensor:
        used.append(x.shape)
        return x

    monkeypatch.setattr(same_pool, "fused_pool", note)
    image = images((2, 3, 5, 4), device="cuda")
    for x in (image, image.contiguous(), image.cpu()):
        SamePool()(x)
    assert used == [image.shape]
    monkeypatch.setattr(same_pool, "can_compile", lambda: False)
    SamePool()(image)
    assert used == [image.shape]


if __name__ == "__main__":
    kernels("cpu")

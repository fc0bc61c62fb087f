"""A batch in parts is separate passes of `nn.BatchNorm2d`: outputs, gradients and running statistics."""

from itertools import product
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from manyheads.models.backbones import BACKBONES
from manyheads.models.kernels.batch_norm import fused_affine, fused_batch_norm
from manyheads.models.norm import BatchNorm, in_parts
from tests.models import interpreted

# Channels that fill no block, a block and more, small parts, several chunks of rows; one pixel.
SHAPES = [((6, 5, 3, 3), (4, 2)), ((4, 16, 8, 8), (2, 2)), ((5, 70, 4, 5), (1, 3, 1)), ((8, 8, 1, 1), (4, 4))]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-3}
Norm = TypeVar("Norm", bound=nn.BatchNorm2d)


class Case:
    """The inputs of every pass, drawn in float64 and rounded to its type."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, residual: bool, device: str = "cpu") -> None:
        rng = torch.Generator().manual_seed(3)
        draw = [torch.randn(size, generator=rng, dtype=torch.float64) for size in (*[shape] * 3, *[shape[1:2]] * 4)]
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        images = [each.to(dtype).to(device, memory_format=torch.channels_last) for each in draw[:3]]
        self.x, self.dy, self.residual = 2.0 * images[0] + 3.0, images[1], images[2] if residual else None
        self.weight, self.bias, self.mean, self.var = (each.to(device, wide) for each in draw[3:])
        self.var = self.var.abs() + 0.5

    def fused(self, parts: tuple[int, ...], relu: bool) -> list[Tensor]:
        leaves = [each.clone().requires_grad_() for each in (self.x, self.weight, self.bias)]
        residual = None if self.residual is None else self.residual.clone().requires_grad_()
        state = [self.mean.clone(), self.var.clone()]
        how = {"parts": parts, "momentum": 0.1, "eps": 1e-5}
        y = fused_batch_norm(*leaves, *state, **how, residual=residual, relu=relu)  # type: ignore[arg-type]
        leaves += [] if residual is None else [residual]
        return [y, *state, *torch.autograd.grad(y, leaves, self.dy)]

    def separate(self, parts: tuple[int, ...], relu: bool) -> list[Tensor]:
        """Compute the reference in float64, a pass per part."""
        norm = self.layer(nn.BatchNorm2d(self.x.shape[1])).double()
        x = self.x.double().requires_grad_()
        y = torch.cat([norm(part) for part in torch.split(x, list(parts))])
        leaves = [x, norm.weight, norm.bias]
        if self.residual is not None:
            leaves.append(self.residual.double().requires_grad_())
            y = y + leaves[-1]
        y = y.relu() if relu else y
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return [y, norm.running_mean, norm.running_var, *torch.autograd.grad(y, leaves, self.dy.double())]

    def layer(self, norm: Norm) -> Norm:
        state = {"weight": self.weight, "bias": self.bias, "running_mean": self.mean, "running_var": self.var}
        norm.to(self.weight).load_state_dict(state, strict=False)
        return norm


def assert_close(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    """Compare tensors; errors are relative to the largest number of each."""
    for number, (one, two) in enumerate(zip(found, wanted, strict=True)):
        error = float((one.detach().double() - two.detach()).abs().max() / two.detach().abs().max())
        assert error < tolerance, (number, error)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("shape", "parts"), SHAPES)
def test_on_the_cpu(shape: tuple[int, ...], parts: tuple[int, ...], residual: bool, relu: bool) -> None:
    case = Case(shape, torch.float64, residual)
    norm, x = case.layer(BatchNorm(shape[1])), case.x.clone().requires_grad_()
    leaves = [x, norm.weight, norm.bias]
    other = None if case.residual is None else case.residual.clone().requires_grad_()
    with in_parts(norm, parts):
        y = norm(x, other, relu)
    grads = torch.autograd.grad(y, leaves if other is None else [*leaves, other], case.dy)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert_close([y, norm.running_mean, norm.running_var, *grads], case.separate(parts, relu), 1e-10)
    assert norm.num_batches_tracked == 0


def test_without_parts_it_is_what_it_was() -> None:
    case = Case((4, 6, 5, 5), torch.float32, residual=True)
    norm, plain = case.layer(BatchNorm(6)), case.layer(nn.BatchNorm2d(6))
    for _ in range(2):
        wanted = (plain(case.x) + case.residual).relu()
        assert torch.equal(norm(case.x, case.residual, relu=True), wanted)
        with in_parts(norm, ()):
            assert torch.equal(norm.eval()(case.x), plain.eval()(case.x))
        norm.train()
        plain.train()
    assert all(torch.equal(one, two) for one, two in zip(norm.buffers(), plain.buffers(), strict=True))


def test_in_parts_sets_and_resets_every_layer() -> None:
    model = BACKBONES["resnet8"](3, 4, "small")
    layers = [module for module in model.modules() if isinstance(module, BatchNorm)]
    assert len(layers) == sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 9
    with in_parts(model, (2, 3)):
        assert all(layer.parts == (2, 3) for layer in layers)
    assert all(layer.parts is None for layer in layers)


def test_parts_that_do_not_fit() -> None:
    case = Case((4, 6, 1, 1), torch.float32, residual=False)
    for parts in ((2, 3), (3, 1), ()):
        with pytest.raises(ValueError, match=r"parts .* of a batch \(4, 6, 1, 1\)"):
            case.fused(parts, relu=False)


def affine(case: Case, relu: bool) -> tuple[list[Tensor], list[Tensor]]:
    own = (case.weight, case.bias, case.mean, case.var)
    y = fused_affine(case.x, *own, eps=1e-5, residual=case.residual, relu=relu)
    wanted = case.layer(nn.BatchNorm2d(case.x.shape[1])).eval().double()(case.x.double())
    wanted = wanted if case.residual is None else wanted + case.residual.double()
    return [y], [wanted.relu() if relu else wanted]


def kernels(device: str) -> None:
    every = list(product(SHAPES, TOLERANCES, (False, True), (False, True)))
    for (shape, parts), dtype, residual, relu in every if device == "cuda" else every[::7]:  # interpreting is slow
        case = Case(shape, dtype, residual, device)
        found = case.fused(parts, relu)
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        assert found[0].dtype == dtype
        assert_close(found, case.separate(parts, relu), TOLERANCES[dtype])
        assert all(torch.equal(one, two) for one, two in zip(found, case.fused(parts, relu), strict=True))
        assert_close(*affine(case, relu), TOLERANCES[dtype])


@pytest.mark.interpreted
def test_kernels_interpreted() -> None:
    interpreted("tests.models.test_norm")


@pytest.mark.gpu
def test_kernels_on_the_gpu() -> None:
    kernels("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_in_a_graph(dtype: torch.dtype) -> None:
    case, parts = Case((24, 48, 9, 7), dtype, residual=True, device="cuda"), (16, 8)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        case.fused(parts, relu=True)  # compiles
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = case.fused(parts, relu=True)
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert_close(found, case.separate(parts, relu=True), TOLERANCES[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("backbone", ["cnn", "resnet8"])
def test_a_backbone_on_the_gpu(backbone: str) -> None:
    model = BACKBONES[backbone](3, 8, "small").to("cuda", torch.float64)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    other = BACKBONES[backbone](3, 8, "small").to("cuda", torch.float64)
    other.load_state_dict(model.state_dict())
    images = torch.randn(12, 3, 16, 16, device="cuda", dtype=torch.float64).to(memory_format=torch.channels_last)
    with in_parts(model, (8, 4)):
        found = model(images)
    wanted = torch.cat([other(images[:8]), other(images[8:])])
    assert_close([found], [wanted], 1e-9)
    grads = [
        torch.autograd.grad(y.square().sum(), list(net.parameters())) for y, net in ((found, model), (wanted, other))
    ]
    assert_close(list(grads[0]), list(grads[1]), 1e-8)
    floats = [[each for each in net.buffers() if each.is_floating_point()] for net in (model, other)]
    assert_close(floats[0], floats[1], 1e-9)
    with torch.no_grad(), in_parts(model.eval(), ()):
        assert_close([model(images)], [other.eval()(images)], 1e-9)


if __name__ == "__main__":
    kernels("cpu")

"""Dropout: its masks are pure functions of a name, the same on every device."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads import Experiment
from manyheads.client.client import Client
from manyheads.models.dropout import BLOCK, Dropout, begin_step, dropouts, keep_mask, replace_dropout, seeded
from manyheads.models.kernels.dropout import KERNEL_BLOCK, NEXT_PASS, fused_dropout
from manyheads.seeds import generator
from manyheads.setup.build import assemble
from tests.contracts import train_by_hand
from tests.models import interpreted

CPU = torch.device("cpu")


def mask(elements: int, key: int, rate: float = 0.3) -> torch.Tensor:
    return keep_mask(torch.Size((elements,)), key, rate, CPU)


def keys(count: int) -> list[int]:
    return [int(key) for key in np.random.default_rng(0).integers(2**63, size=count)]


def test_in_evaluation_mode_it_does_nothing() -> None:
    x = torch.randn(4, 3, 2, 2)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("rate", [0.2, 0.3, 0.4, 0.9])
def test_it_drops_the_rate_and_scales_the_rest(rate: float) -> None:
    x = torch.rand(32, 8, 16, 16, dtype=torch.float64) + 1.0
    y = Dropout(rate)(x)
    dropped = float((y == 0.0).double().mean())
    assert abs(dropped - rate) < 4.0 * (rate * (1.0 - rate) / x.numel()) ** 0.5
    torch.testing.assert_close(y[y != 0.0], x[y != 0.0] / (1.0 - rate))
    assert not Dropout(1.0)(x).any()


def test_the_gradient_goes_where_the_values_go() -> None:
    layer, x = Dropout(0.5), torch.ones(6, 40, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())


def test_the_mask_follows_from_key_pass_and_element() -> None:
    one, again, x = Dropout(0.5), Dropout(0.5), torch.ones(50, 50)
    for layer in (one, again):
        layer.begin_step(7)
    first, second = one(x), one(x)
    assert torch.equal(first, again(x))
    assert not torch.equal(first, second)
    one.begin_step(7)
    assert torch.equal(one(x), first)
    one.begin_step(8)
    assert not torch.equal(one(x), first)


@pytest.mark.parametrize("key", [7, torch.tensor(7), 2**64 - 1, torch.tensor(-1)])
def test_a_batch_in_parts_is_so_many_passes(key: int | Tensor) -> None:
    together, apart, x = Dropout(0.5), Dropout(0.5), torch.randn(6, 5, 4, 3)
    together.parts = (4, 2)
    for layer in (together, apart):
        layer.begin_step(key)
    for _ in range(2):
        assert torch.equal(together(x), torch.cat([apart(x[:4]), apart(x[4:])]))


def test_a_number_may_be_dropped() -> None:
    assert Dropout(0.5)(torch.tensor(1.0)).shape == ()


def test_memory_order_does_not_matter() -> None:
    """Devices may lay out the same feature map differently."""
    plain, other, x = Dropout(0.5), Dropout(0.5), torch.randn(3, 5, 4, 6)
    assert torch.equal(plain(x), other(x.to(memory_format=torch.channels_last)))


def test_a_mask_is_the_same_in_blocks() -> None:
    assert torch.equal(mask(BLOCK + 9, 3)[:BLOCK], mask(BLOCK, 3))
    assert len(mask(0, 3)) == 0


def test_masks_are_known() -> None:
    """Every device and every version must give these first masks."""
    assert mask(16, 0, 0.5).int().tolist() == KNOWN[0]
    assert mask(16, 2**62 + 12345, 0.5).int().tolist() == KNOWN[1]


def by_hand(element: int, key: int) -> int:
    word = element
    for part in (key % 2**32, key // 2**32 % 2**32, 0):
        word ^= part
        word = (word ^ word >> 16) * 0x45D9F3B % 2**32
    return word ^ word >> 16


KNOWN = [[int(by_hand(element, key) >= 2**31) for element in range(16)] for key in (0, 2**62 + 12345)]


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_elements_keys_and_passes_are_independent(rate: float) -> None:
    """Correlations of neighbours, channels, passes and layers are within a few standard errors."""
    elements, found = 2**16, []
    for key in keys(20):
        centred = mask(elements, key, rate).double() - (1.0 - rate)
        found.append(centred)
        found += [centred[lag:] * centred[:-lag] for lag in (1, 2, 3, 8, 16, 64, 128, 1024)]
        others = ((key + NEXT_PASS) % 2**64, (key + 2 * NEXT_PASS) % 2**64, key + 2**40 + 1)
        found += [centred * (mask(elements, other, rate).double() - (1.0 - rate)) for other in others]
    errors = torch.stack([x.mean() / x.std() * len(x) ** 0.5 for x in found])
    assert errors.abs().max() < 4.5
    assert 0.85 < errors.std() < 1.15


def test_each_layer_has_a_key_of_its_own() -> None:
    model = nn.Sequential(Dropout(0.5), nn.Sequential(Dropout(0.5)))
    layers = dropouts(model)
    begin_step(layers, generator(0, "dropout", 1, 2))
    x = torch.ones(50, 50)
    assert not torch.equal(layers[0](x), layers[1](x))


def test_plain_dropout_is_replaced_wherever_it_stands() -> None:
    twice, alpha = nn.Dropout(0.4), nn.AlphaDropout(0.1)
    model = nn.Sequential(twice, nn.ModuleDict({"a": nn.Dropout(0.1), "b": twice}), alpha)
    replace_dropout(model)
    inner = model[1]
    assert isinstance(inner, nn.ModuleDict)
    assert [type(module) for module in (model[0], inner["a"], inner["b"])] == [Dropout] * 3
    assert model[0] is inner["b"]
    assert model[2] is alpha
    assert [layer.p for layer in dropouts(model)] == [0.4, 0.1]


def test_a_step_of_a_client_draws_nothing_global(tiny: Experiment) -> None:
    small = {"batch_size": 4, "public_batch_size": 4, "steps": 2}
    for backbone in ("fedmd0", "tests.models.lab:Functional"):
        state = torch.get_rng_state()
        train_by_hand(assemble(tiny.with_values(clients=2, model={"backbone": backbone}, training=small)))
        assert torch.equal(torch.get_rng_state(), state)


def test_a_client_s_masks_follow_seed_client_step_and_pass(tiny: Experiment) -> None:
    ensemble = assemble(tiny.with_values(clients=2, model={"backbone": "tests.models.lab:dropping"}))
    seen: dict[tuple[int, int], list[torch.Tensor]] = {}

    def losses(client: Client, batch: object, step: int) -> dict[str, torch.Tensor]:
        layers = dropouts(client.model)
        seen[client.index, step] = [layer(torch.ones(4, 400)) for _ in range(2) for layer in layers]
        return {"nothing": torch.zeros((), requires_grad=True)}

    for client in ensemble.clients:
        for step in (0, 1):
            client.step(losses, None, step, 0.1)  # type: ignore[arg-type]
    drawn = [tuple(mask.flatten().tolist()) for masks in seen.values() for mask in masks]
    assert len(drawn) == 2 * 2 * 4
    assert len(set(drawn)) == len(drawn)
    again = dict(seen)
    ensemble.clients[1].step(losses, None, 1, 0.1)  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(again[1, 1], seen[1, 1], strict=True))


def test_seeded_repeats_and_restores() -> None:
    before = torch.get_rng_state()
    drawn = []
    for step in (0, 0, 1):
        with seeded(generator(0, "foreign draws", 0, step)):
            drawn.append(torch.rand(5))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
def test_the_gpu_drops_the_same_elements() -> None:
    shape = torch.Size((5, 300, 40, 31))
    for key in keys(3):
        assert torch.equal(keep_mask(shape, key, 0.3, CPU), keep_mask(shape, key, 0.3, torch.device("cuda")).cpu())


SHAPES = (((6, 8, 9, 10), (4, 2)), ((6, 70), (1, 2, 3)), ((3, KERNEL_BLOCK, 1, 1), (3,)), ((5, 3, 7, 6), (5,)))


def both(x: Tensor, key: Tensor, rate: float, parts: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Return two passes and the second one's gradient, by the kernel and by torch's own operations."""
    layer, weights = Dropout(rate), torch.randn(x.shape, device=x.device).to(x.dtype)
    layer.parts = parts
    layer.begin_step(key.cpu())
    there, here = x.clone().requires_grad_(), x.cpu().requires_grad_()
    found = [fused_dropout(there, key, rate, parts=parts, before=before) for before in (0, len(parts))]
    wanted = [layer(here), layer(here)]
    found += torch.autograd.grad(found[1], there, weights)
    return found, [*wanted, *torch.autograd.grad(wanted[1], here, weights.cpu())]


def kernel(device: str) -> None:
    """The bits are the same, but interpreted kernels cut off where they should round to bfloat16."""
    tolerance = {torch.float64: 0.0, torch.float32: 0.0, torch.bfloat16: 0.0 if device == "cuda" else 2.0**-7}
    every = list(product(SHAPES, tolerance, (0.3, 0.9), (7, 2**63 - 5, -3)))
    for (shape, parts), dtype, rate, key in every if device == "cuda" else every[::5]:  # interpreting is slow
        x = torch.randn(shape, device=device).to(dtype)
        order = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        x = x.to(memory_format=order)
        found, wanted = both(x, torch.tensor(key, device=device), rate, parts)
        for one, two in zip(found, wanted, strict=True):
            assert one.dtype == dtype
            assert one.is_contiguous(memory_format=order)
            assert torch.equal(one.cpu() == 0.0, two == 0.0)
            torch.testing.assert_close(one.cpu(), two, rtol=tolerance[dtype], atol=0.0)
        assert not torch.equal(found[0], found[1])


@pytest.mark.interpreted
def test_the_kernel_interpreted() -> None:
    interpreted("tests.models.test_dropout")


def test_what_the_kernel_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    image, key = torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last), torch.tensor(1)
    for x, parts, rate in (
        (image, (2, 1), 0.5),
        (image.int(), (4,), 0.5),
        (image.contiguous(), (4,), 0.5),
        (image[:0], (0,), 0.5),
        (image, (4,), 1.0 - 2.0**-40),
    ):
        with pytest.raises(ValueError, match="not what the kernel can do"):
            fused_dropout(x, key, rate, parts=parts)
    monkeypatch.setattr("manyheads.models.kernels.dropout.MOST", image.numel() - 1)
    with pytest.raises(ValueError, match="not what the kernel can do"):
        fused_dropout(image, key, 0.5, parts=(4,))


@pytest.mark.gpu
def test_the_kernel_on_the_gpu() -> None:
    kernel("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_layer_in_a_graph(dtype: torch.dtype) -> None:
    """A graph of two passes in parts is replayed with another key."""
    x, key = torch.randn(6, 8, 9, 10, dtype=dtype, device="cuda"), torch.tensor(3, device="cuda")
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    layer = Dropout(0.3)
    layer.parts = (4, 2)

    def passes(x: Tensor, key: Tensor) -> list[Tensor]:
        layer.begin_step(key)
        y = [layer(x), layer(x)]
        return [*y, *torch.autograd.grad(y[0].sum() + (2.0 * y[1]).sum(), x)]

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        passes(x, key)  # compiles
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = passes(x, key)
    for number in (3, 2**62 + 11):
        key.fill_(number)
        graph.replay()
        torch.cuda.synchronize()
        wanted = passes(x.detach().cpu().requires_grad_(), torch.tensor(number))
        assert all(torch.equal(one.cpu(), two) for one, two in zip(found, wanted, strict=True))


@pytest.mark.gpu
def test_a_captured_step_uses_the_kernel_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    used, on_gpu = [], torch.tensor(3, device="cuda")

    def note(x: Tensor, *_: object, **__: object) -> Tensor:
        used.append(x.shape)
        return x

    monkeypatch.setattr("manyheads.models.dropout.fused_dropout", note)
    x = torch.ones(4, 3, 5, 5, device="cuda")  # not in the order of channels_last
    for given, key in ((x[0], on_gpu), (x[0], 3), (x, on_gpu)):
        layer = Dropout(0.5)
        layer.begin_step(key)
        layer(given)
    assert used == [x[0].shape]


@pytest.mark.gpu
def test_seeded_on_the_gpu() -> None:
    before = torch.cuda.get_rng_state()
    drawn = []
    for _ in range(2):
        with seeded(generator(0, "foreign draws"), "cuda"):
            drawn.append(torch.rand(5, device="cuda"))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(torch.cuda.get_rng_state(), before)


if __name__ == "__main__":
    kernel("cpu")

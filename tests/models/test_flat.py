"""The flat tensor: a module's parameters are its memory."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads.config.experiment import ModelConfig
from manyheads.models.client_model import ClientModel, initialise, make_model
from manyheads.models.flat import ALIGNMENT, FlatState


def model(seed: int = 0) -> ClientModel:
    made = make_model(ModelConfig(backbone="resnet8", width=4), image_shape=(32, 32, 3), heads=3, classes=5)
    initialise(made, np.random.default_rng(seed))
    return made


def test_outputs_are_unchanged_and_order_is_kept() -> None:
    plain, flat = model(), model()
    FlatState(flat)
    images = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    for a, b in zip(plain(images), flat(images), strict=True):
        assert torch.equal(a, b)
    convolution = next(m for m in flat.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 3)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)


def test_parameters_and_statistics_are_views_on_aligned_places() -> None:
    made = model()
    state = FlatState(made)
    named = dict(made.named_parameters()) | {k: b for k, b in made.named_buffers() if b.is_floating_point()}
    assert {slot.name for slot in state.layout} == set(named)
    for slot in state.layout:
        assert slot.offset % ALIGNMENT == 0
        assert named[slot.name].data_ptr() == state.values[slot.offset :].data_ptr()
    assert state.parameter_size == min(s.offset for s in state.layout if "running" in s.name)
    state.values.fill_(0.25)
    assert all(bool((tensor == 0.25).all()) for tensor in named.values())


def test_gradients_gather_in_one_tensor() -> None:
    made, reference = model(), model()
    state = FlatState(made)
    images = torch.randn(4, 3, 16, 16)
    for m in (made, reference):
        m(images)[0].square().mean().backward()
    for (name, own), other in zip(made.named_parameters(), reference.parameters(), strict=True):
        assert own.grad is not None, name
        assert torch.equal(own.grad, other.grad if other.grad is not None else Tensor())
    total = sum(float(p.grad.double().square().sum()) for p in reference.parameters() if p.grad is not None)
    assert state.gradient.double().square().sum().item() == pytest.approx(total)


def test_load_copies_everything_that_evaluation_needs() -> None:
    source, copy = model(0), model(1)
    state, target = FlatState(source), FlatState(copy, trainable=False)
    source(torch.randn(8, 3, 16, 16))  # moves BatchNorm statistics and counts a batch
    target.load(state.values.clone(), state.copy_integers())
    images = torch.randn(4, 3, 16, 16)
    assert torch.equal(source.eval()(images)[0], copy.eval()(images)[0])
    assert copy.state_dict().keys() == source.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(copy.state_dict().values(), source.state_dict().values(), strict=True))
    assert int(next(iter(target.integers.values()))) == 1


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight


def test_tied_weights_stay_tied() -> None:
    made = Tied()
    state = FlatState(made)
    assert [slot.name for slot in state.layout] == ["one.weight", "one.bias", "two.bias"]
    state.values.fill_(2.0)
    assert made.two.weight is made.one.weight
    assert float(made.two.weight[0, 0].detach()) == 2.0


def test_frozen_parameters_lie_between_the_trained_ones_and_the_statistics() -> None:
    made = model()
    made.backbone.get_parameter("conv1.weight").requires_grad_(False)
    before = made.backbone.get_parameter("conv1.weight").detach().clone()
    state = FlatState(made)
    names = [slot.name for slot in state.layout]
    assert names.index("backbone.conv1.weight") == names.index("backbone.bn1.running_mean") - 1
    assert made.backbone.get_parameter("conv1.weight").grad is None
    assert len(state.gradient) == state.parameter_size == state.layout[names.index("backbone.conv1.weight")].offset
    mean = torch.full_like(state.values, 0.25)
    state.take_mean(mean)
    assert torch.equal(made.backbone.get_parameter("conv1.weight"), before)
    assert float(made.heads.bias[0].detach()) == 0.25
    assert float(made.backbone.get_buffer("bn1.running_mean")[0]) == 0.25


def test_mixed_types_are_refused() -> None:
    with pytest.raises(ValueError, match="one floating-point type"):
        FlatState(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))

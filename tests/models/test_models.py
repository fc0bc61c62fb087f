"""Backbones, heads and first weights."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from manyheads import ConfigurationError
from manyheads.config.experiment import ModelConfig
from manyheads.models.backbones import BACKBONES
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.dropout import dropouts
from manyheads.models.fedmd import FEDMD

COUNTS = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032}
# Of the convolutions and their BatchNorm for colour images: what the authors' models have before their last layer.
FEDMD_COUNTS = {
    "fedmd0": 299_520,
    "fedmd1": 447_360,
    "fedmd2": 595_200,
    "fedmd3": 598_272,
    "fedmd4": 1_188_864,
    "fedmd5": 330_752,
    "fedmd6": 256_832,
    "fedmd7": 545_856,
    "fedmd8": 217_600,
    "fedmd9": 291_520,
}


def made(seed: int = 0, channels: int = 3, heads: int = 3, classes: int = 7, **config: object) -> ClientModel:
    return make_model(
        ModelConfig.model_validate(config),
        image_shape=(32, 32, channels),
        heads=heads,
        classes=classes,
        rng=np.random.default_rng(seed),
    )


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("stem", ["small", "large"])
def test_every_backbone_gives_an_embedding_and_all_heads(backbone: str, stem: str) -> None:
    model = made(backbone=backbone, stem=stem, width=8)
    size = 32 if stem == "small" else 64
    logits, embedding = model(torch.randn(2, 3, size, size))
    assert logits.shape == (2, 3, 7)
    assert embedding.shape == (2, model.embedding_width)
    assert torch.isfinite(logits).all()
    assert all(bool(torch.isfinite(tensor).all()) for tensor in model.state_dict().values())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_heads_see_the_mean_of_a_map_or_all_of_it(backbone: str) -> None:
    model, whole = (
        made(backbone=backbone, width=8).eval(),
        made(backbone=backbone, width=8, heads_see="feature_map").eval(),
    )
    whole.backbone.load_state_dict(model.backbone.state_dict())
    images = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        (logits, embedding), (logits_whole, embedding_whole) = model(images), whole(images)
        feature_map = model.backbone(images)
    assert torch.equal(embedding, embedding_whole)
    assert torch.allclose(embedding, feature_map.mean((2, 3)), atol=1e-6)
    assert torch.allclose(logits.flatten(1), embedding @ model.heads.weight.T + model.heads.bias, atol=1e-5)
    by_position = whole.heads.weight.reshape(3 * 7, *feature_map.shape[2:], feature_map.shape[1])
    expected = torch.einsum("bexy,cxye->bc", feature_map, by_position) + whole.heads.bias
    assert torch.allclose(logits_whole.flatten(1), expected, atol=1e-4)


@pytest.mark.parametrize(("backbone", "expected"), COUNTS.items())
def test_parameter_counts_are_those_everybody_means(backbone: str, expected: int) -> None:
    """The numbers of parameters are those of the ImageNet models with 1000 classes and one head."""
    model = made(backbone=backbone, stem="large", width=64, heads=1, classes=1000)
    assert sum(p.numel() for p in model.parameters()) == expected


GRADIENTS = """
import torch
from manyheads.models.resnet import Shortcut
torch.set_num_threads(1)
for channels in (3, 4, 8, 12):
    for _ in range(100):
        layer = Shortcut(channels, 8, 2).to(memory_format=torch.channels_last)
        images = torch.randn(2, channels, 16, 12).contiguous(memory_format=torch.channels_last).requires_grad_()
        found = torch.autograd.grad(layer(images).square().sum(), [images, layer.weight])
    said = torch.einsum("bcxy,oc->boxy", images[:, :, ::2, ::2], layer.weight[:, :, 0, 0])
    expected = torch.autograd.grad(said.square().sum(), [images, layer.weight])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
"""


def test_gradients_of_narrow_shortcuts_do_not_crash() -> None:
    """oneDNN's own gradient ends the process: with 3 and 4 channels on AVX2, whose registers hold 8 numbers."""
    subprocess.run([sys.executable, "-c", GRADIENTS], check=True)


def test_fifty_layers_have_wide_embeddings() -> None:
    assert made(backbone="resnet50", width=4).embedding_width == 4 * 8 * 4


def test_resnets_have_the_names_of_public_files() -> None:
    names = made(backbone="resnet18", stem="large", width=2).backbone.state_dict().keys()
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer1.0.bn2.bias"} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var", "layer4.1.bn2.weight"} <= names
    assert not [name for name in names if name.startswith("layer1.0.downsample")]
    deep = made(backbone="resnet50", width=2).backbone.state_dict()
    assert {"layer1.0.downsample.0.weight", "layer3.5.conv3.weight", "layer4.2.bn3.num_batches_tracked"} <= deep.keys()
    assert deep["layer2.0.conv2.weight"].shape == (4, 4, 3, 3)
    assert made(backbone="resnet50", width=2).backbone.get_submodule("layer2.0.conv2").stride == (2, 2)


@pytest.mark.parametrize("backbone", FEDMD)
def test_fedmd_s_models_are_those_of_its_authors(backbone: str) -> None:
    model, (widths, rate) = made(backbone=backbone), FEDMD[backbone]
    assert sum(p.numel() for p in model.backbone.parameters()) == FEDMD_COUNTS[backbone]
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert tuple(m.out_channels for m in convolutions) == widths
    assert [layer.p for layer in dropouts(model)] == [rate] * len(widths)
    assert model.embedding_width == widths[-1]
    feature_map = model.eval().backbone(torch.zeros(1, 3, 28, 28))
    assert feature_map.shape[2:] == ((13, 13) if len(widths) == 2 else (3, 3))
    # Of 32 x 32 images, as the authors' last layer: a number for each position and channel.
    positions = 15 * 15 if len(widths) == 2 else 3 * 3
    assert made(backbone=backbone, heads_see="feature_map", heads=1, classes=16).heads.weight.shape == (
        16,
        positions * widths[-1],
    )


def test_neither_width_nor_stem_changes_fedmd_s_models() -> None:
    one, other = made(backbone="fedmd5"), made(backbone="fedmd5", width=3, stem="large")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_first_weights_follow_the_generator() -> None:
    one, again, other = (made(seed, backbone="cnn", width=4) for seed in (0, 0, 1))
    weights = [m.heads.weight for m in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_unknown_backbone() -> None:
    with pytest.raises(ConfigurationError, match='did you mean "resnet18"'):
        made(backbone="resnet19")

"""Backbones, heads and first weights."""

import numpy as np
import pytest
import torch

from manyheads import ConfigurationError
from manyheads.experiment import ModelConfig
from manyheads.models.backbones import BACKBONES
from manyheads.models.client_model import ClientModel, initialise, make_model


def made(seed: int = 0, channels: int = 3, heads: int = 3, classes: int = 7, **config: object) -> ClientModel:
    model = make_model(ModelConfig.model_validate(config), channels=channels, heads=heads, classes=classes)
    initialise(model, np.random.default_rng(seed))
    return model


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("stem", ["small", "large"])
def test_every_backbone_gives_an_embedding_and_all_heads(backbone: str, stem: str) -> None:
    model = made(backbone=backbone, stem=stem, width=8)
    size = 32 if stem == "small" else 64
    logits, embedding = model(torch.randn(2, 3, size, size))
    assert logits.shape == (2, 3, 7)
    assert embedding.shape == (2, model.backbone.embedding_width)
    assert torch.isfinite(logits).all()
    assert all(bool(torch.isfinite(tensor).all()) for tensor in model.state_dict().values())


@pytest.mark.parametrize(("backbone", "expected"), [("resnet18", 11_689_512), ("resnet34", 21_797_672)])
def test_parameter_counts_are_those_everybody_means(backbone: str, expected: int) -> None:
    """The counts of the ImageNet models with 1000 classes and one head."""
    model = made(backbone=backbone, stem="large", width=64, heads=1, classes=1000)
    assert sum(p.numel() for p in model.parameters()) == expected


def test_first_weights_follow_the_generator() -> None:
    one, again, other = (made(seed, backbone="cnn", width=4) for seed in (0, 0, 1))
    weights = [m.heads.weight for m in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_unknown_backbone() -> None:
    with pytest.raises(ConfigurationError, match='did you mean "resnet18"'):
        made(backbone="resnet19")

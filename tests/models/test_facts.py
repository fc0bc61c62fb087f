"""The trial of every model before any time is spent on it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from manyheads import ConfigurationError, Experiment, train
from manyheads.config.experiment import ModelConfig
from manyheads.console import Bar, Lines, Screen
from manyheads.imports import Trust
from manyheads.models.backbones import BACKBONES
from manyheads.models.client_model import make_model
from manyheads.models.facts import ModelFacts, try_out
from manyheads.runs.read import read_events, read_summary
from manyheads.setup.build import assemble
from manyheads.setup.resolve import resolve
from tests.contracts import train_by_hand

LAB = "tests.models.lab:"


@pytest.mark.parametrize("backbone", BACKBONES)
def test_operations_are_those_that_torch_counts(backbone: str) -> None:
    config = ModelConfig(backbone=backbone, width=4)
    model = make_model(config, image_shape=(16, 12, 3), heads=2, classes=5, rng=np.random.default_rng(0))
    images = torch.randn(2, 3, 16, 12)
    facts = try_out(model, images, backbone, 4)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(images)
    assert facts.flops == counter.get_total_flops() // 2 > 0
    assert facts.parameters == sum(p.numel() for p in model.parameters())


def test_a_resnet_of_imagenet_is_known() -> None:
    """ResNet-18 takes 1.8 billion multiplications and additions for an image of 224 pixels, as is well known."""
    config = ModelConfig(backbone="resnet18", stem="large")
    model = make_model(config, image_shape=(224, 224, 3), heads=1, classes=1000, rng=np.random.default_rng(0))
    facts = try_out(model, torch.randn(2, 3, 224, 224), "resnet18", 64)
    assert facts.flops / 2 == pytest.approx(1.814e9, rel=1e-3)
    assert str(facts) == "resnet18, width 64, 11,689,512 parameters, 3,628.1 MFLOP per image, embedding 512"


def test_attention_is_counted() -> None:
    config = ModelConfig(backbone=f"{LAB}attending")
    rng, own = np.random.default_rng(0), Trust.full()
    model = make_model(config, image_shape=(8, 8, 1), heads=1, classes=2, rng=rng, trust=own)
    facts = try_out(model, torch.randn(2, 1, 8, 8), f"{LAB}attending", 64)
    tokens, width = 8, 8
    projections, attention, layers = 4 * tokens * width**2, 2 * tokens**2 * width, 2 * tokens * width * 16
    assert facts.flops == 2 * (projections + attention + layers + width * 2)


def test_maps_and_heads_are_among_the_parameters(tiny: Experiment) -> None:
    model = {"backbone": ["cnn", "resnet8", f"{LAB}Small"], "width": [4, 3, 5]}
    ensemble = assemble(tiny.with_values(model=model))
    real = [sum(p.numel() for p in client.model.parameters()) for client in ensemble.clients]
    assert [facts.parameters for facts in ensemble.resolved.models] == real
    assert ensemble.resolved.embedding_widths == (16, 12, 5)
    assert all(facts.flops > 0 for facts in ensemble.resolved.models)


def test_trying_out_leaves_no_trace(tiny: Experiment) -> None:
    """First weights and losses do not depend on models that were tried out for other clients."""
    state = torch.get_rng_state()
    same, mixed = (
        assemble(tiny.with_values(model={"backbone": [first, "cnn", "cnn"]}, algorithm={"name": "separate"}))
        for first in ("cnn", f"{LAB}Functional")
    )
    losses = [train_by_hand(ensemble) for ensemble in (same, mixed)]
    assert torch.equal(losses[0][:, 1:], losses[1][:, 1:])
    assert not torch.equal(losses[0][:, 0], losses[1][:, 0])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_feature_map_that_heads_cannot_see_is_refused(tiny: Experiment) -> None:
    message = r"client 2 \(fedmd5\): cannot take images of 8 x 8 x 1 \(height x width x channels\): RuntimeError: "
    with pytest.raises(ConfigurationError, match=message):
        resolve(tiny.with_values(model={"backbone": ["cnn", "cnn", "fedmd5"], "heads_see": "feature_map"}))


def test_heads_of_an_external_backbone_see_its_output(tiny: Experiment) -> None:
    experiment = tiny.with_values(model={"backbone": ["cnn", f"{LAB}Small", f"{LAB}Small"]})
    one, whole = resolve(experiment), resolve(experiment.with_values(model={"heads_see": "feature_map"}))
    assert one.models[1:] == whole.models[1:]
    assert one.models[0].parameters < whole.models[0].parameters


@pytest.mark.parametrize(
    ("backbone", "told"),
    [
        (
            f"{LAB}feature_map",
            f"client 2 ({LAB}feature_map): yields 2 x 5 x 3 x 3 for 2 images; needed: one vector per image; "
            "end with nn.AdaptiveAvgPool2d(1) and nn.Flatten()",
        ),
        (f"{LAB}Reshaped", f"client 2 ({LAB}Reshaped): yields 1 x 128 for 2 images; needed: one vector per image"),
        (f"{LAB}Pair", f"client 2 ({LAB}Pair): yields a tuple for 2 images; needed: one vector per image"),
        (f"{LAB}Classes", f"client 2 ({LAB}Classes): yields 2 x 64 of int64 for 2 images; needed: one vector"),
        (f"{LAB}NotFinite", f"client 2 ({LAB}NotFinite): yields numbers that are not finite in evaluation mode"),
        (f"{LAB}NotFiniteInTraining", "yields numbers that are not finite in training mode"),
        (f"{LAB}AlwaysDropping", "gives other embeddings when called again with the same images in evaluation mode"),
        (f"{LAB}Exiting", "cannot take images of 8 x 8 x 1 (height x width x channels): SystemExit: 0 (lab.py, line "),
        (
            f"{LAB}exiting_in_training",
            "in training mode cannot take images of 8 x 8 x 1 (height x width x channels): Sy",
        ),
        (f"{LAB}Reassigning", f'client 2 ({LAB}Reassigning): makes or replaces "mean" in a pass'),
        (f"{LAB}InPlace", f"client 2 ({LAB}InPlace): in training mode cannot take images of 8 x 8 x 1"),
        (
            f"{LAB}meeting_28_pixels",
            f"client 2 ({LAB}meeting_28_pixels): cannot take images of 8 x 8 x 1 (height x width x channels): "
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        ),
        ("fedmd5", "client 2 (fedmd5): cannot take images of 8 x 8 x 1 (height x width x channels): RuntimeError: "),
    ],
)
def test_what_is_not_an_embedding_is_refused_in_one_line(tiny: Experiment, backbone: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve(tiny.with_values(model={"backbone": ["cnn", "cnn", backbone]}))
    assert told in str(error.value)
    assert str(error.value).startswith("client 2 (")
    assert "\n" not in str(error.value)


def test_a_line_per_client_before_training(tiny: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = tiny.with_values(model={"backbone": ["cnn", "fedmd0", f"{LAB}Small"]}, training={"steps": 2})
    experiment = experiment.with_values(training={"batch_size": 2, "public_batch_size": 2})
    train(experiment, observer=Lines(Screen(quiet=True), "x"))
    models = resolve(experiment).models
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"client-{client}: {model}" for client, model in enumerate(models)]
    assert lines[0].startswith("client-0: cnn, width 4, ")
    assert lines[0].endswith(" parameters, 0.024 MFLOP per image, embedding 16")
    assert lines[1].startswith("client-1: fedmd0, 3")
    assert lines[2].startswith(f"client-2: {LAB}Small, ")
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=140, highlight=False), "tiny") as bar:
        bar.started(assemble(experiment), 0)
    assert f"client-2: {models[2]}" in out.getvalue()


def test_counts_are_recorded(tiny: Experiment, tmp_path: Path) -> None:
    experiment = tiny.with_values(model={"width": [4, 5, 6]}, training={"steps": 2})
    train(experiment, tmp_path / "run")
    models = resolve(experiment).models
    start, summary = read_events(tmp_path / "run")[0], read_summary(tmp_path / "run")
    assert start["parameters"] == [model.parameters for model in models]
    assert start["flops"] == [model.flops for model in models]
    for client, model in zip(summary["clients"], models, strict=True):
        assert {key: client[key] for key in ("backbone", "width", "parameters", "flops")} == {
            "backbone": "cnn",
            "width": model.width,
            "parameters": model.parameters,
            "flops": model.flops,
        }


def test_equal_models_are_tried_out_once(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    from manyheads.setup import models

    tried = []

    def counted(*args: Any) -> ModelFacts:
        tried.append(args)
        return try_out(*args)

    monkeypatch.setattr(models, "try_out", counted)
    resolve(tiny.with_values(clients=5, model={"width": [4, 5, 4, 5, 4]}))
    assert len(tried) == 2

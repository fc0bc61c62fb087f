"""Pretrained weights from a local file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from manyheads import ConfigurationError, Experiment, load_model, resume, train
from manyheads.config.experiment import ModelConfig
from manyheads.errors import Interrupted
from manyheads.export.write import export
from manyheads.imports import Trust
from manyheads.models.client_model import ClientModel, make_model
from manyheads.setup.build import assemble
from manyheads.setup.resolve import resolve
from manyheads.studies.reevaluate import reevaluate
from tests.runs.conftest import StopAt

RESNET: dict[str, Any] = {"backbone": "resnet18", "width": 2}
SHORT = {"steps": 6, "batch_size": 4, "public_batch_size": 4}


def made(seed: int = 0, **config: Any) -> ClientModel:
    rng, own = np.random.default_rng(seed), Trust.full()
    return make_model(ModelConfig(**config), image_shape=(8, 8, 1), heads=2, classes=10, rng=rng, trust=own)


def numbers(seed: int = 7, **config: Any) -> dict[str, Tensor]:
    """Return a backbone as it might have been trained elsewhere."""
    model = made(seed, **(config or RESNET))
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return {name: tensor.clone().contiguous() for name, tensor in model.backbone.state_dict().items()}


def saved(path: Path, tensors: dict[str, Tensor]) -> str:
    safetensors.torch.save_file(tensors, path)
    return str(path)


def assert_loaded(model: ClientModel, tensors: dict[str, Tensor]) -> None:
    own = model.backbone.state_dict()
    assert all(torch.equal(own[name].cpu(), tensor) for name, tensor in tensors.items())


def test_the_backbone_starts_from_the_file_and_the_heads_do_not(tmp_path: Path) -> None:
    tensors = numbers()
    file = saved(tmp_path / "w.safetensors", tensors)
    model, fresh = made(weights=file, **RESNET), made(**RESNET)
    assert_loaded(model, tensors)
    assert torch.equal(model.heads.weight, fresh.heads.weight)
    assert not torch.equal(model.backbone.get_parameter("conv1.weight"), fresh.backbone.get_parameter("conv1.weight"))


def with_classifier(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Public ResNet files have a classifier, and some have no counts of batches."""
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    return {**kept, "fc.weight": torch.zeros(1000, 16), "fc.bias": torch.zeros(1000)}


def as_exported(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    beside = {"heads.weight": torch.zeros(3, 16), "heads.bias": torch.zeros(3), "maps.4.weight": torch.zeros(4, 16)}
    return {**{f"backbone.{name}": tensor for name, tensor in tensors.items()}, **beside}


def in_double(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("form", [with_classifier, as_exported, in_double])
def test_files_of_several_origins(form: Callable[[dict[str, Tensor]], dict[str, Tensor]], tmp_path: Path) -> None:
    tensors = numbers()
    model = made(weights=saved(tmp_path / "w.safetensors", form(tensors)), **RESNET)
    assert_loaded(model, {name: tensor for name, tensor in tensors.items() if "num_batches" not in name})


def test_an_exported_model_starts_another_run(tiny: Experiment, tmp_path: Path) -> None:
    train(tiny.with_values(training=SHORT), tmp_path / "run")
    export(tmp_path / "run", 2, tmp_path / "out")
    file = str(tmp_path / "out" / "model.safetensors")
    ensemble = assemble(tiny.with_values(model={"weights": ["", file, ""]}))
    assert_loaded(ensemble.clients[1].model, load_model(tmp_path / "out").model.backbone.state_dict())
    plain = assemble(tiny)
    for client in (0, 2):
        assert torch.equal(ensemble.clients[client].state.values, plain.clients[client].state.values)


def test_one_file_for_all(tiny: Experiment, tmp_path: Path) -> None:
    tensors = numbers(backbone="cnn", width=4)
    file = saved(tmp_path / "w.safetensors", tensors)
    for client in assemble(tiny.with_values(model={"weights": file})).clients:
        assert_loaded(client.model, tensors)
    assert assemble(tiny.with_values(model={"weights": ""})).resolved.experiment.model.for_client(0).weights is None


def test_own_models_load_theirs(tmp_path: Path) -> None:
    config: dict[str, Any] = {"backbone": "tests.models.lab:Tied"}
    tensors = numbers(**config)
    assert_loaded(made(weights=saved(tmp_path / "w.safetensors", tensors), **config), tensors)
    once = {name: tensor for name, tensor in tensors.items() if name != "two.weight"}  # as tied weights are often saved
    assert_loaded(made(weights=saved(tmp_path / "once.safetensors", once), **config), tensors)
    frozen: dict[str, Any] = {"backbone": "tests.models.lab:Frozen", "width": 3}
    tensors = numbers(**frozen)
    assert_loaded(made(weights=saved(tmp_path / "frozen.safetensors", tensors), **frozen), tensors)


def without(*names: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if name not in names}


def with_one(name: str, tensor: Tensor) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {**tensors, name: tensor}


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (without("bn1.bias"), 'has no "bn1.bias" (2), which resnet18 needs'),
        (without("bn1.bias", "bn1.weight"), 'has no "bn1.weight" (2), which resnet18 needs (and 1 more)'),
        (without("layer4.1.bn2.running_var"), 'has no "layer4.1.bn2.running_var" (16), which resnet18 needs'),
        (
            with_one("conv1.weight", torch.zeros(2, 3, 7, 7)),
            '"conv1.weight" is 2 x 3 x 7 x 7, resnet18 here needs 2 x 1 x 3 x 3; model.stem = "large" has that',
        ),
        (
            with_one("layer5.0.conv1.weight", torch.zeros(2, 2)),
            'holds "layer5.0.conv1.weight" (2 x 2), which resnet18 does not have',
        ),
        (with_one("bn1.bias", torch.tensor([0.0, torch.nan])), '"bn1.bias" holds a number that is not finite'),
        (
            with_one("bn1.bias", torch.tensor([0.0, 1e300], dtype=torch.float64)),
            '"bn1.bias" holds a number that is not finite',
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    tiny: Experiment, tmp_path: Path, form: Callable[[dict[str, Tensor]], dict[str, Tensor]], told: str
) -> None:
    file = saved(tmp_path / "w.safetensors", form(numbers()))
    with pytest.raises(ConfigurationError) as error:
        assemble(tiny.with_values(model={**RESNET, "weights": file}))
    assert str(error.value) == f'model.weights = "{file}": {told}'


def test_what_is_not_a_safetensors_file_is_refused(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(name: str) -> str:
        with pytest.raises(ConfigurationError) as error:
            assemble(tiny.with_values(model={"weights": name}))
        assert "\n" not in str(error.value)
        return str(error.value)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("not weights")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "folder.safetensors").mkdir()
    torch.save({}, tmp_path / "x.pth")
    for pickle in ("x.pth", "a/x.pt", "x.bin", "x"):
        here = Path(pickle).name
        assert refusal(pickle) == (
            f'model.weights = "{pickle}": not a safetensors file; convert a PyTorch file once by '
            f'safetensors.torch.save_file(torch.load("{here}", weights_only=True), "x.safetensors")'
        )
    for folder in ("/", ".", ".."):
        assert refusal(folder).startswith(f'model.weights = "{folder}": not a safetensors file; ')
    assert refusal("text.safetensors").startswith('model.weights = "text.safetensors": not a safetensors file: ')
    assert refusal("empty.safetensors").startswith('model.weights = "empty.safetensors": not a safetensors file: ')
    assert refusal("none.safetensors").startswith('model.weights = "none.safetensors": cannot be read: ')
    assert refusal("folder.safetensors").startswith('model.weights = "folder.safetensors": ')


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "model.weights = 3: must be a safetensors file, or a list of files with one per client"),
        ([1, 2, 3], "model.weights = [1, 2, 3]: must be a safetensors file"),
        (["", ""], "model.weights: a list of 2 for clients = 3; give one value, or one per client"),
    ],
)
def test_wrong_values_are_refused(tiny: Experiment, given: object, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve(tiny.with_values(model={"weights": given}))
    assert str(error.value).startswith(told)


def test_different_files_cannot_be_averaged(tiny: Experiment) -> None:
    averaging = {"name": "averaging"}
    with pytest.raises(
        ConfigurationError, match=r"client 0 \(cnn, width 4\) and client 1 \(cnn, width 4, weights a\.s"
    ):
        resolve(tiny.with_values(algorithm=averaging, model={"weights": ["", "a.safetensors", ""]}))


def test_the_file_is_read_when_first_weights_are_made_and_never_again(tiny: Experiment, tmp_path: Path) -> None:
    file = Path(saved(tmp_path / "w.safetensors", numbers(backbone="cnn", width=4)))
    experiment = tiny.with_values(model={"weights": str(file)})
    whole = train(experiment)
    with pytest.raises(Interrupted):
        train(experiment, tmp_path / "run", observer=StopAt(13))
    file.unlink()
    resumed = resume(tmp_path / "run")
    assert all(torch.equal(a.state.values, b.state.values) for a, b in zip(whole.clients, resumed.clients, strict=True))
    images = torch.randint(0, 256, (5, 8, 8, 1), dtype=torch.uint8)
    said = resumed.classifier(1)(images)
    assert torch.equal(load_model(tmp_path / "run", 1)(images), said)
    export(tmp_path / "run", 1, tmp_path / "out")
    assert torch.equal(load_model(tmp_path / "out")(images), said)
    assert reevaluate(tmp_path / "run").measured["test"]["shared_accuracy"] == whole.summary["shared_accuracy"]
    resolve(experiment)  # what needs no weights does not ask for them
    with pytest.raises(ConfigurationError, match="cannot be read"):
        train(experiment)

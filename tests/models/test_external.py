"""External backbones: the user's own, named by import path, and timm's."""

import importlib
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from manyheads import ConfigurationError, Experiment, load_model, train
from manyheads.config.experiment import ModelConfig
from manyheads.engine.plain import exchange
from manyheads.export.write import export
from manyheads.imports import Trust
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.dropout import Dropout, dropouts
from manyheads.models.flat import FlatState
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.resolve import resolve
from tests.contracts import train_by_hand, weights
from tests.models import lab

LAB = "tests.models.lab:"
SHORT = {"steps": 6, "batch_size": 4, "public_batch_size": 4}


def made(factory: str, seed: int = 0, **config: Any) -> ClientModel:
    return make_model(
        ModelConfig(backbone=f"{LAB}{factory}", **config),
        image_shape=(8, 8, 1),
        heads=2,
        classes=3,
        rng=np.random.default_rng(seed),
        trust=Trust.full(),
    )


def short(tiny: Experiment, *factories: str, **values: Any) -> Experiment:
    backbones = [f"{LAB}{name}" if hasattr(lab, name) else name for name in factories]
    model = {"backbone": backbones[0] if len(backbones) == 1 else backbones}
    return tiny.with_values(model=model, training=SHORT).with_values(**values)


@pytest.mark.parametrize(
    ("factory", "width", "embedding"),
    [
        ("Small", 5, 5),
        ("no_arguments", 64, 6),
        ("of_shape", 64, 5),
        ("dropping", 3, 12),
        ("Tied", 64, 8),
        ("SHAPED", 64, 3),
    ],
)
def test_a_factory_is_called_with_what_it_names(factory: str, width: int, embedding: int) -> None:
    model = made(factory, width=width)
    assert model.embedding_width == embedding
    logits, said = model(torch.randn(4, 1, 8, 8))
    assert (logits.shape, said.shape) == ((4, 2, 3), (4, embedding))


def test_first_weights_follow_the_generator_and_nothing_else() -> None:
    torch.manual_seed(1)
    one, state = made("Small"), torch.get_rng_state()
    torch.manual_seed(2)
    again, other = made("Small"), made("Small", seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True) if a.dim() > 1)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_averaging_starts_from_common_weights(tiny: Experiment) -> None:
    for name, equal in (("averaging", True), ("separate", False)):
        first, *others = weights(assemble(short(tiny, "Small", algorithm={"name": name})))
        assert [other == first for other in others] == [equal, equal]


def test_plain_dropout_is_named() -> None:
    assert [layer.p for layer in dropouts(made("dropping").backbone)] == [0.3, 0.2]
    assert {type(layer) for layer in made("attending").modules() if isinstance(layer, nn.Dropout)} == {Dropout}


def test_code_that_relies_on_memory_order_or_writes_into_its_input(tiny: Experiment) -> None:
    ensemble = assemble(short(tiny, "Viewing"))
    client = ensemble.clients[0]
    images = client.batches(0, 1, ensemble.resolved.algorithm.plan(client, 0, 1)).at(0).private.images
    before = images.clone()
    client.model(images)
    assert torch.equal(images, before)
    assert torch.isfinite(train_by_hand(ensemble)).all()


def test_parameters_that_wait_for_a_first_pass(tiny: Experiment) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules say that they are new
        ensemble = assemble(short(tiny, "lazy"))
        assert torch.isfinite(train_by_hand(ensemble)).all()
    assert ensemble.resolved.embedding_widths == (7, 7, 7)
    assert len({values[:64] for values in weights(ensemble)}) == 3


def test_numbers_of_another_type_become_ours(tiny: Experiment) -> None:
    """A module in half precision and evaluation mode is trained all the same."""
    ensemble = assemble(short(tiny, "half"))
    assert {p.dtype for p in ensemble.clients[0].model.parameters()} == {torch.float32}
    assert all(module.training for module in ensemble.clients[0].model.modules())
    assert assemble(short(tiny, "Tied"), dtype=torch.float64).clients[0].state.values.dtype == torch.float64


def test_tied_weights_and_integers_stay_together(tiny: Experiment) -> None:
    ensemble = assemble(short(tiny, "Tied"))
    train_by_hand(ensemble)
    client = ensemble.clients[0]
    backbone = client.model.backbone
    assert isinstance(backbone, lab.Tied)
    assert backbone.two.weight is backbone.one.weight
    assert int(backbone.calls) == 2 * 6  # a private and a public pass a step
    snapshot = client.snapshot(6)
    assert int(snapshot.integers["backbone.calls"]) == 12
    rows = client.batches(0, 1, ensemble.resolved.algorithm.plan(client, 0, 1)).at(0).public
    said = snapshot.outputs(rows).embedding_BE
    client.model.eval()
    assert said is not None
    assert torch.equal(said, client.model(rows.images)[1])


@pytest.mark.parametrize("name", ["mhd", "averaging", "separate"])
def test_frozen_parameters_stay_to_the_bit(tiny: Experiment, name: str) -> None:
    knobs: dict[str, Any] = {"mhd": {"pool_size": 2, "pool_every": 2}, "averaging": {"average_every": 2}}.get(name, {})
    ensemble = assemble(short(tiny, "Frozen", algorithm={"name": name, **knobs}))

    def frozen(client: int) -> list[Tensor]:
        return [p.detach().clone() for p in ensemble.clients[client].model.parameters() if not p.requires_grad]

    before = [frozen(client) for client in range(3)]
    assert len(before[0]) == 2
    trained = [p for p in ensemble.clients[0].model.parameters() if p.requires_grad]
    was = [p.detach().clone() for p in trained]
    train_by_hand(ensemble)
    for client in range(3):
        assert all(torch.equal(a, b) for a, b in zip(before[client], frozen(client), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(was, trained, strict=True))


def test_the_layout_of_frozen_parameters_is_one_for_all(tiny: Experiment) -> None:
    ensemble = assemble(short(tiny, "Frozen"))
    exchange(ensemble, step=0)
    client = ensemble.clients[0]
    layout = client.state.layout
    assert layout == client.replica.state.layout == FlatState(client.make_model(), trainable=False).layout
    names = [slot.name for slot in layout]
    assert names[-4:] == [f"backbone.{name}" for name in ("conv.weight", "conv.bias", "norm.running_mean")] + [
        "backbone.norm.running_var"
    ]
    assert client.state.parameter_size == next(s.offset for s in layout if s.name == "backbone.conv.weight")
    assert len(client.momentum) == client.state.parameter_size
    assert not any(p.requires_grad for p in client.replica.model.parameters())


MIXED = ("cnn", "Frozen", "Functional", "dropping")


@pytest.mark.parametrize("exchanged", ["weights", "predictions"])
def test_models_of_all_kinds_teach_each_other(tiny: Experiment, exchanged: str, tmp_path: Path) -> None:
    algorithm = {"exchange": exchanged, "pool_every": 2}
    experiment = short(tiny, *MIXED, clients=4, algorithm=algorithm)
    result = train(experiment, tmp_path / "run")
    images = torch.randint(0, 256, (5, 8, 8, 1), dtype=torch.uint8)
    assert [client["embedding_width"] for client in result.summary["clients"]] == [16, 4, 4, 16]
    for client in range(4):
        said = result.classifier(client, head=1)(images)
        assert torch.equal(load_model(tmp_path / "run", client=client, head=1)(images), said)


@pytest.mark.parametrize("factory", ["Frozen", "Tied", "dropping"])
def test_an_exported_model_of_the_user(tiny: Experiment, factory: str, tmp_path: Path) -> None:
    result = train(short(tiny, factory), tmp_path / "run")
    card = export(tmp_path / "run", 1, tmp_path / "out")
    assert card["model"]["backbone"] == f"{LAB}{factory}"
    assert f"A {LAB}{factory} trained with mhd" in (tmp_path / "out" / "README.md").read_text()
    images = torch.randint(0, 256, (5, 8, 8, 1), dtype=torch.uint8)
    state = torch.get_rng_state()
    assert torch.equal(load_model(tmp_path / "out", head=2)(images), result.classifier(1, head=2)(images))
    assert torch.equal(torch.get_rng_state(), state)


def test_loading_a_model_whose_file_is_gone_says_so(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone_lab.py").write_text("from tests.models.lab import Small\n")
    monkeypatch.syspath_prepend(tmp_path)
    train(short(tiny, "gone_lab:Small"), tmp_path / "run")
    (tmp_path / "gone_lab.py").unlink()
    del sys.modules["gone_lab"]
    with pytest.raises(ConfigurationError, match=r'^model.backbone = "gone_lab:Small": cannot be imported: '):
        load_model(tmp_path / "run")


BROKEN = "def f(:\n"


@pytest.mark.parametrize(
    ("backbone", "told"),
    [
        ("no_such_lab:Net", 'model.backbone = "no_such_lab:Net": cannot be imported: ModuleNotFoundError: No module'),
        (f"{LAB}no_argumnts", 'tests.models.lab has no no_argumnts; did you mean "no_arguments"?'),
        ("broken_lab:Net", 'model.backbone = "broken_lab:Net": cannot be imported: SyntaxError: '),
        (":Net", 'model.backbone = ":Net": cannot be imported: '),
        (f"{LAB}raising", f'model.backbone = "{LAB}raising": raised ValueError: no such depth'),
        (f"{LAB}exiting", f'model.backbone = "{LAB}exiting": raised SystemExit: 0 (lab.py, line '),
        (f"{LAB}stopping", f'model.backbone = "{LAB}stopping": raised Stop: now (lab.py, line '),
        (f"{LAB}command", "is a function of arguments, verbose; one that makes a model takes nothing, or one of chann"),
        (f"{LAB}nothing", f'model.backbone = "{LAB}nothing": returns a NoneType; needed: an nn.Module'),
        (f"{LAB}MODULE", "is a Flatten; needed: a function or class that returns a new nn.Module at each call"),
        (f"{LAB}ABORTING", "is a partial; needed: a function or class that returns a new nn.Module"),
        (f"{LAB}Leaving", "is the class Leaving; needed: a function or class that returns a new nn.Module"),
        (f"{LAB}LEAVING", "is a Leaving; needed: a function or class that returns a new nn.Module"),
        ("_thread:interrupt_main", "_thread is a part of Python itself; needed: a function or class that returns"),
        ("torch:abs", "is a builtin_function_or_method; needed: a function or class that returns a new nn.Module"),
        (f"{LAB}LAYERS", "is a int; needed: a function or class"),
        (f"{LAB}demanding", 'needs the argument "depth"; offered are channels, width, image_shape'),
    ],
)
def test_what_is_not_a_factory_is_refused_in_one_line(
    tiny: Experiment, backbone: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_lab.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError) as error:
        resolve(tiny.with_values(model={"backbone": ["cnn", backbone, backbone]}))
    assert str(error.value).startswith("client 1: model.backbone = ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_one_module_for_two_clients_is_refused(tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match="returns a Linear that it returned before; make a new one at each"):
        assemble(short(tiny, "shared"))


class FakeTimm(types.ModuleType):
    """A fake of timm with just the functions that are used."""

    def __init__(self, accepts: tuple[str, ...], build: Callable[..., Any]) -> None:
        super().__init__("timm")
        self.accepts, self.build = accepts, build
        self.calls: list[dict[str, Any]] = []

    def list_models(self) -> list[str]:
        return ["resnet10t", "resnet18", "resnet18d", "vit_tiny_patch16_224"]

    def is_model(self, name: str) -> bool:
        return name in self.list_models()

    def create_model(self, name: str, pretrained: bool, num_classes: int, in_chans: int, **options: Any) -> Any:
        unknown = [key for key in options if key not in self.accepts]
        torch.rand(3)  # an attempt may draw before it fails
        if unknown:
            raise TypeError(f"ResNet.__init__() got an unexpected keyword argument '{unknown[0]}'")
        self.calls.append({"name": name, "pretrained": pretrained, "num_classes": num_classes, **options})
        return self.build(in_chans)


def fake_timm(monkeypatch: pytest.MonkeyPatch, *accepts: str, build: Callable[..., Any] | None = None) -> FakeTimm:
    fake = FakeTimm(accepts, build or (lambda channels: lab.Small(channels, 4)))
    monkeypatch.setitem(sys.modules, "timm", fake)
    return fake


@pytest.mark.parametrize("accepts", [(), ("img_size",)])
def test_timm_is_asked_for_pooled_features(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, accepts: tuple[str, ...]
) -> None:
    fake = fake_timm(monkeypatch, *accepts)
    ensemble = assemble(short(tiny, "timm:resnet18"))
    size = {"img_size": (8, 8)} if accepts else {}
    assert fake.calls == [{"name": "resnet18", "pretrained": False, "num_classes": 0, **size}] * 4  # tried out, clients
    assert ensemble.resolved.models[0].backbone == "timm:resnet18"
    assert torch.isfinite(train_by_hand(ensemble)).all()
    again = assemble(short(tiny, "timm:resnet18"))
    first = assemble(short(tiny, "timm:resnet18"))
    assert weights(again) == weights(first)


def test_an_attempt_that_fails_changes_no_weights(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for accepts in ((), ("img_size",)):
        fake_timm(monkeypatch, *accepts)
        found.append(weights(assemble(short(tiny, "timm:resnet18"))))
    assert found[0] == found[1]


def test_errors_of_timm_are_one_line(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(name: str) -> str:
        with pytest.raises(ConfigurationError) as error:
            resolve(short(tiny, name))
        assert "\n" not in str(error.value)
        return str(error.value)

    fake_timm(monkeypatch)
    close = 'client 0: model.backbone = "timm:resnet19": timm has no such model; did you mean resnet18 or '
    assert refusal("timm:resnet19").startswith(close)
    for name in ("zzz", "hf-hub:zzz/zzz", "local-dir:zzz"):
        assert refusal(f"timm:{name}").endswith("timm has no such model; timm.list_models() names them all")

    def wrong_size(channels: int) -> nn.Module:
        raise AssertionError("Input size should be a multiple of 7\nand so on")

    fake_timm(monkeypatch, build=wrong_size)
    raised = "AssertionError: Input size should be a multiple of 7 (test_external.py, line "
    assert refusal("timm:resnet18").startswith(f'client 0: model.backbone = "timm:resnet18": cannot be made: {raised}')
    fake_timm(monkeypatch, build=lambda channels: nn.Conv2d(channels, 4, 3))
    assert refusal("timm:resnet18").startswith(
        "client 0 (timm:resnet18): yields 2 x 4 x 6 x 6 for 2 images; needed: one"
    )
    monkeypatch.setitem(sys.modules, "timm", None)
    missing = refusal("timm:resnet18")
    assert missing.startswith('client 0: model.backbone = "timm:resnet18": timm cannot be imported (')
    assert missing.endswith("); pip install 'manyheads[timm]'")


def real_timm() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            timm: Any = importlib.import_module("timm")
    except Exception as error:  # timm brings torchvision, which breaks in many ways beside another torch
        pytest.skip(f"timm cannot be imported here: {type(error).__name__}: {error}")
    return timm


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "embedding"),
    [("resnet18", 512), ("vit_tiny_patch16_224", 192), ("mobilenetv3_small_050", 1024), ("convnext_atto", 320)],
)
def test_real_timm_models(tiny: Experiment, small_npz: Path, name: str, embedding: int, tmp_path: Path) -> None:
    """Images are 32 x 32, larger than a patch."""
    real_timm()
    arrays = dict(np.load(small_npz))
    for part in ("x_train", "x_test"):
        arrays[part] = np.pad(arrays[part], ((0, 0), (10, 10), (11, 11), (0, 0)))
    np.savez(tmp_path / "padded.npz", **arrays)
    data = {"source": "npz", "path": str(tmp_path / "padded.npz"), "primary_labels": {"per_client": 2}}
    experiment = short(tiny, f"timm:{name}", data=data, training={"steps": 2})
    result = train(experiment, tmp_path / "run")
    assert [client["embedding_width"] for client in result.summary["clients"]] == [embedding] * 3
    images = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8)
    assert torch.equal(load_model(tmp_path / "run", 1)(images), result.classifier(1)(images))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_our_resnets_are_those_of_timm(name: str, tmp_path: Path) -> None:
    """With weights of timm's ResNets, loaded by name, ours give timm's features."""
    theirs = real_timm().create_model(name).eval()
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    file = str(tmp_path / "w.safetensors")
    safetensors.torch.save_file(theirs.state_dict(), file)
    config = ModelConfig(backbone=name, stem="large", weights=file)
    ours = make_model(config, image_shape=(64, 64, 3), heads=1, classes=1000, rng=np.random.default_rng(0)).eval()
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    theirs.reset_classifier(0)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images)[1], theirs(images), rtol=1e-4, atol=1e-4)


def test_weights_start_the_same_whether_or_not_others_are_foreign(tiny: Experiment) -> None:
    mixed, alone = (assemble(short(tiny, first, "cnn", "cnn")) for first in ("no_arguments", "cnn"))
    compared: list[Ensemble] = [mixed, alone]
    heads = [ensemble.clients[1].model.heads.weight for ensemble in compared]
    assert torch.equal(heads[0], heads[1])

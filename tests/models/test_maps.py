"""Clients whose embeddings differ in width: the student learns a map for each foreign width."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from manyheads import ConfigurationError, Experiment, load_model, train
from manyheads.client.plan import WindowPlan
from manyheads.engine.plain import exchange
from manyheads.export.write import export
from manyheads.runs.read import read_summary
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.resolve import resolve
from tests.contracts import train_by_hand

WIDTHS = {"width": [4, 6, 4, 3]}  # embeddings of 16, 24, 16 and 12


def different(tiny: Experiment, **values: Any) -> Experiment:
    return tiny.with_values(clients=4, model=WIDTHS).with_values(**values)


def maps_of(ensemble: Ensemble) -> list[dict[str, tuple[int, ...]]]:
    return [
        {name: tuple(module.get_parameter("weight").shape) for name, module in client.model.maps.items()}
        for client in ensemble.clients
    ]


def test_a_map_for_each_foreign_width_and_none_for_the_own(tiny: Experiment) -> None:
    ensemble = assemble(different(tiny))
    assert ensemble.resolved.embedding_widths == (16, 24, 16, 12)
    assert maps_of(ensemble) == [
        {"12": (12, 16), "24": (24, 16)},
        {"12": (12, 24), "16": (16, 24)},
        {"12": (12, 16), "24": (24, 16)},
        {"16": (16, 12), "24": (24, 12)},
    ]
    embedding = torch.randn(5, 16)
    assert ensemble.clients[0].model.mapped(embedding, 16) is embedding
    assert ensemble.clients[0].model.mapped(embedding, 24).shape == (5, 24)


def test_equal_widths_need_no_maps(tiny: Experiment) -> None:
    assert maps_of(assemble(tiny)) == [{}, {}, {}]
    one, several = (assemble(tiny.with_values(model={"width": width})) for width in (4, [4, 4, 4]))
    assert torch.equal(train_by_hand(one), train_by_hand(several))


@pytest.mark.parametrize(
    "algorithm",
    [
        {"nu_emb": 0.0},
        {"name": "separate"},
        {"name": "fedmd", "first_private_steps": 10, "digest_steps": 5, "revisit_steps": 5},
    ],
)
def test_without_comparing_embeddings_there_are_no_maps(tiny: Experiment, algorithm: dict[str, Any]) -> None:
    assert maps_of(assemble(different(tiny, algorithm=algorithm))) == [{}, {}, {}, {}]


def test_resnet34_among_resnet18s_has_an_embedding_of_the_same_width(tiny: Experiment) -> None:
    model = {"backbone": ["resnet18", "resnet34", "resnet18"], "width": 2}
    checked = resolve(tiny.with_values(model=model))
    assert checked.embedding_widths == (16, 16, 16)
    assert [checked.foreign_widths(client) for client in range(3)] == [[], [], []]
    assert not checked.architecture(1).maps
    sizes = [sum(p.numel() for p in checked.architecture(client).parameters()) for client in range(3)]
    assert sizes[0] == sizes[2] < sizes[1]


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_the_embedding_loss_compares_in_the_width_of_the_teacher(tiny: Experiment, entry: int) -> None:
    """The loss is |map(xi_i) - xi_j|^2 on normalised embeddings, by hand in float64; the snapshot is not mapped."""
    ensemble = assemble(different(tiny, algorithm={"nu_emb": 0.5, "select": "most_confident"}), dtype=torch.float64)
    exchange(ensemble, step=0)
    client = ensemble.clients[0]  # its pool: clients 1, 2 and 3
    plan = WindowPlan(targets=np.array([[entry]]), arrays={"ramp": np.array([1.0])})
    batch = client.batches(0, 1, plan).at(0)
    terms = ensemble.resolved.algorithm.losses(client, batch, 0)
    own = client.model(batch.public.images)[1].detach()
    theirs = client.pool.entries[entry].outputs(batch.public).embedding_BE
    assert theirs is not None
    assert theirs.shape[1] == (24, 16, 12)[entry]
    if theirs.shape[1] != 16:
        own = own @ client.model.maps[str(theirs.shape[1])].get_parameter("weight").detach().T
    expected = sum(float(((own[b] / own[b].norm() - theirs[b] / theirs[b].norm()) ** 2).sum()) for b in range(len(own)))
    assert terms["embedding"].item() == pytest.approx(0.5 * expected / len(own))
    raw = ensemble.clients[1 + entry].snapshot(0).outputs(batch.public).embedding_BE
    assert raw is not None
    assert torch.equal(raw, theirs)


def test_the_gradient_reaches_the_map_of_the_teacher_s_width_and_the_backbone(tiny: Experiment) -> None:
    ensemble = assemble(different(tiny, algorithm={"nu_aux": 0.0, "select": "most_confident"}), dtype=torch.float64)
    exchange(ensemble, step=0)
    client = ensemble.clients[0]
    for entry, used in ((0, {"24"}), (1, set()), (2, {"12"})):
        plan = WindowPlan(targets=np.array([[entry]]), arrays={"ramp": np.array([1.0])})
        batch = client.batches(0, 1, plan).at(0)
        client.state.gradient.zero_()
        ensemble.resolved.algorithm.losses(client, batch, 0)["embedding"].backward()  # type: ignore[no-untyped-call]
        touched = {
            name
            for name, module in client.model.maps.items()
            if (grad := module.get_parameter("weight").grad) is not None and grad.abs().max() > 0.0
        }
        assert touched == used
        backbone = [p.grad for p in client.model.backbone.parameters() if p.grad is not None]
        assert sum(float(grad.abs().sum()) for grad in backbone) > 0.0


def test_maps_are_trained(tiny: Experiment) -> None:
    """Maps move, and the mapped distances become smaller."""
    experiment = different(tiny, algorithm={"ramp": {"hold": 0.0, "rise": 0.0}, "nu_aux": 0.0})
    ensemble = assemble(experiment)
    before = {name: module.get_parameter("weight").clone() for name, module in ensemble.clients[0].model.maps.items()}
    embedding = train_by_hand(ensemble)[:, 1::3]
    for name, weight in before.items():
        assert not torch.equal(weight, ensemble.clients[0].model.maps[name].get_parameter("weight"))
    assert (embedding[-4:].mean(0) < embedding[:4].mean(0)).all()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"width": [4, 6]}, "model.width: a list of 2 for clients = 3; give one value, or one per client"),
        ({"width": []}, "model.width: a list of 0 for clients = 3"),
        ({"backbone": ["cnn"] * 4}, "model.backbone: a list of 4 for clients = 3"),
        ({"backbone": ["cnn", "cnn", "resnet19"]}, 'model.backbone = "resnet19": unknown backbone; did you mean'),
        ({"width": [4, 0, 4]}, "model.width = [4, 0, 4]: must be a number of channels from 1 to"),
        ({"backbone": ["cnn", 1, "cnn"]}, "model.backbone = "),
    ],
    ids=str,
)
def test_wrong_lists_are_refused(tiny: Experiment, model: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve(tiny.with_values(model=model))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_client_with_maps_is_loaded_and_exported_without_them(tiny: Experiment, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(different(tiny, training={"steps": 6}), run)
    images = torch.randint(0, 256, (7, 8, 8, 1), dtype=torch.uint8)
    summary = read_summary(run)
    assert [client["maps"] for client in summary["clients"]] == [[12, 24], [12, 16], [12, 24], [16, 24]]
    assert [client["embedding_width"] for client in summary["clients"]] == [16, 24, 16, 12]
    for client in (0, 1, 3):
        said = result.classifier(client, head=1)(images)
        loaded = load_model(run, client=client, head=1)
        assert loaded.model.maps.keys() == {str(width) for width in summary["clients"][client]["maps"]}
        assert torch.equal(loaded(images), said)
        out = tmp_path / f"exported{client}"
        export(run, client, out)
        assert torch.equal(load_model(out, head=1)(images), said)
        saved = safetensors.torch.load_file(out / "model.safetensors")
        assert not [name for name in saved if "maps" in name]
        assert json.loads((out / "model.json").read_text())["model"]["width"] == (4, 6, 4, 3)[client]

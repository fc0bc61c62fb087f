"""The oracle is for measurements: it needs public labels, and nobody may take its models for others'."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from manyheads import ConfigurationError, Experiment, RunError, load_model, train
from manyheads.algorithms import ALGORITHMS
from manyheads.algorithms.mhd import MHD
from manyheads.cli.commands import app
from manyheads.engine.plain import exchange
from manyheads.evaluation.teacher_tally import who_taught_whom
from manyheads.setup.build import assemble
from manyheads.setup.resolve import resolve


@pytest.fixture
def measuring(tiny: Experiment) -> Experiment:
    return tiny.with_values(algorithm={"select": "oracle"}, training={"steps": 4, "log_every": 2, "warmup_steps": 0})


def test_it_teaches_the_label_wherever_somebody_knows_it(measuring: Experiment) -> None:
    ensemble = assemble(measuring.with_values(algorithm={"targets_per_step": 3}), dtype=torch.float64)
    exchange(ensemble, step=0)
    client, algorithm = ensemble.clients[0], ensemble.resolved.algorithm
    batch = client.batches(0, 1, algorithm.plan(client, 0, 1)).at(0)
    client.model.eval()
    choices = algorithm.teacher_choices(client, batch)
    assert choices is not None
    logits_BHC, _ = client.model(batch.public.images)
    said = [logits_BHC.softmax(-1), *(teacher.outputs(batch.public).probabilities_BHC for teacher in batch.teachers)]
    right_BK = torch.stack([p[:, :-1].argmax(-1) == batch.public_labels()[:, None] for p in said]).any(0)
    assert 0 < right_BK.sum() < right_BK.numel()
    assert torch.equal(choices.class_BK == batch.public_labels()[:, None], right_BK)


def test_its_teachers_are_right_more_often(measuring: Experiment) -> None:
    right = {}
    for select in ("oracle", "most_confident"):
        ensemble = assemble(measuring.with_values(algorithm={"select": select, "targets_per_step": 2}))
        exchange(ensemble, step=0)
        taught = who_taught_whom(ensemble.clients, ensemble.resolved.algorithm, 0, 2, pairs=False)
        assert taught is not None
        assert taught.own_right is not None
        assert taught.others_right is not None
        right[select] = np.sum(taught.own_right) + np.sum(taught.others_right)
    assert right["oracle"] > right["most_confident"]


def test_its_models_are_not_for_use(measuring: Experiment, tmp_path: Path) -> None:
    train(measuring, tmp_path / "run")
    for client in (0, 2):
        with pytest.raises(RunError, match=r'run: algorithm\.select = "oracle" read the labels') as error:
            load_model(tmp_path / "run", client)
        assert "\n" not in str(error.value)
    result = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert result.exit_code != 0
    assert 'algorithm.select = "oracle" read the labels of the public set' in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_without_public_labels_there_is_no_oracle(measuring: Experiment, small_npz: Path, tmp_path: Path) -> None:
    images = np.load(small_npz)["x_train"]
    np.savez(tmp_path / "public.npz", x_train=images[:40])
    public = {"source": "npz", "path": str(tmp_path / "public.npz")}
    data = {
        "source": "npz",
        "path": str(small_npz),
        "public": public,
        "public_fraction": None,
        "primary_labels": {"per_client": 3},
    }
    blind = measuring.with_values(data=data)
    with pytest.raises(
        ConfigurationError, match=r'^algorithm\.select = "oracle": reads the labels .* has none'
    ) as error:
        resolve(blind)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigurationError, match=r"^algorithm\.select"):
        train(blind, tmp_path / "run")
    resolve(blind.with_values(algorithm={"select": "mixture"}))


def test_it_alone_measures_and_nobody_trains_with_these_labels() -> None:
    assert MHD(select="oracle").measures_with_public_labels
    assert not MHD(select="oracle").reads_public_labels
    assert not any(kind().measures_with_public_labels for kind in ALGORITHMS.values())

"""FedMD's two settings as experiment files: they load, divide the data as they say, and start."""

from pathlib import Path

import numpy as np
import pytest

from manyheads import Experiment, train
from manyheads.setup.resolve import resolve
from manyheads.setup.resolved import ResolvedExperiment

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
FINE, COARSE, EACH = 100, 20, 52  # fine classes, superclasses, and training samples of each fine class here
SIDE = 16  # half of CIFAR's: with all of it the largest of the ten models take seconds


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of CIFAR's form, full of noise: five fine classes to a superclass, not in the order of their numbers."""
    rng = np.random.default_rng(0)
    superclass = rng.permutation(np.repeat(np.arange(COARSE), FINE // COARSE))
    arrays = {}
    for part, each in (("train", EACH), ("test", 1)):
        labels = rng.permutation(np.repeat(np.arange(FINE), each))
        arrays[f"x_{part}"] = rng.integers(0, 256, size=(len(labels), SIDE, SIDE, 3), dtype=np.uint8)
        arrays[f"y_{part}"], arrays[f"coarse_{part}"] = labels, superclass[labels]
    arrays["coarse_names"] = np.array([f"super {number}" for number in range(COARSE)])
    np.savez(tmp_path / "cifar100.npz", **arrays)  # type: ignore[arg-type]
    labels = np.repeat(np.arange(10), 13)
    images = rng.integers(0, 256, size=(len(labels), SIDE, SIDE, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, class_names=np.array(list("abcdefghij")))
    monkeypatch.chdir(tmp_path)


def loaded(name: str) -> ResolvedExperiment:
    """With a small model: what is looked at is the data."""
    return resolve(Experiment.load(EXPERIMENTS / f"{name}.toml", ["model.backbone=cnn", "model.width=2"]))


def fine_classes(of: ResolvedExperiment, client: int) -> dict[int, set[int]]:
    """For each label, the fine classes of it that a client holds."""
    train, own = of.dataset.train, of.split.private[client]
    assert train.fine is not None
    pairs = set(zip(train.known_labels[own].tolist(), train.fine[own].tolist(), strict=True))
    return {label: {fine for at, fine in pairs if at == label} for label, _ in pairs}


@pytest.mark.usefixtures("cifar")
@pytest.mark.parametrize(("name", "labels"), [("fedmd-20coarse", 20), ("fedmd-clean", 6)])
def test_a_client_holds_one_fine_class_of_each_superclass(name: str, labels: int) -> None:
    of = loaded(name)
    train = of.dataset.train
    assert train.fine is not None
    every = {
        label: np.unique(train.fine[train.used][train.known_labels[train.used] == label]).tolist()
        for label in range(labels)
    }
    for client in range(10):
        assert fine_classes(of, client) == {label: {every[label][client % 5]} for label in range(labels)}
    together = np.concatenate(of.split.private)
    assert len(together) == len(np.unique(together))


@pytest.mark.usefixtures("cifar")
def test_the_paper_s_setting_uses_everything() -> None:
    of = loaded("fedmd-20coarse")
    assert of.sample_counts() == {
        "training": FINE * EACH,
        "public": 130,
        "validation": 0,
        "private": FINE * EACH,
        "unused": 0,
        "test": FINE,
    }
    assert of.label_counts().tolist() == [[EACH // 2] * COARSE] * 10
    assert of.dataset.classes == COARSE
    assert of.dataset.public is not None
    assert of.dataset.public.labels is None  # CIFAR-10's classes are not the superclasses


@pytest.mark.usefixtures("cifar")
def test_the_authors_setting() -> None:
    of = loaded("fedmd-clean")
    names = [f"super {number}" for number in (0, 1, 7, 9, 12, 18)]
    assert of.dataset.class_names == (*names, *"abcdefghij")  # 16 outputs
    assert of.label_counts().tolist() == [[20] * 6 + [0] * 10] * 10
    assert of.dataset.public is not None
    assert np.unique(of.dataset.public.known_labels).tolist() == list(range(6, 16))
    assert len(of.algorithm.exchange_steps(of.experiment.training.steps)) == 13
    assert of.experiment.algorithm.options()["alignment_samples"] == 5_000
    assert of.experiment.model.backbone == "cnn"


@pytest.mark.usefixtures("cifar")
@pytest.mark.parametrize(
    ("name", "fewer"),
    [
        ("fedmd-20coarse", {"pool_every": 1, "pool_size": 1}),
        ("fedmd-clean", {"first_public_steps": 1, "first_private_steps": 1, "digest_steps": 1, "revisit_steps": 1}),
    ],
)
def test_it_starts_with_the_ten_models(name: str, fewer: dict[str, int]) -> None:
    experiment = Experiment.load(EXPERIMENTS / f"{name}.toml").with_values(
        algorithm=fewer,
        training={"steps": 4, "warmup_steps": 0, "batch_size": 4, "public_batch_size": 4},
        evaluate={"every": 4},
    )
    summary = train(experiment).summary
    assert [client["backbone"] for client in summary["clients"]] == [f"fedmd{number}" for number in range(10)]
    assert len({client["parameters"] for client in summary["clients"]}) == 10

"""Public sets from elsewhere, finer classes, clients with data of their own, and images that are in two places."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from manyheads import ConfigurationError, Experiment, train
from manyheads.cli.commands import app
from manyheads.data.arrays import Images
from manyheads.data.loading import load
from manyheads.data.views import model_input
from manyheads.evaluation.accuracy import Evaluation, accuracy_on, evaluation_of, score
from manyheads.report.plots import plot_run
from manyheads.runs.events import TaughtEvent
from manyheads.runs.read import read_events
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.notes import notes_of
from manyheads.setup.resolve import resolve
from manyheads.setup.resolved import ResolvedExperiment
from tests.contracts import train_by_hand
from tests.data.made import check_line, class_folders, classes_by_brightness, data, pixels, refusal, used

NAMES = ("cat", "dog", "owl")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    class_folders(tmp_path / "pets", dict.fromkeys(NAMES, 16))
    class_folders(tmp_path / "pets" / "test", dict.fromkeys(NAMES, 4), seed=1)
    return tmp_path / "pets"


def experiment(data: dict[str, Any], **values: Any) -> Experiment:
    small: dict[str, Any] = {
        "clients": 2,
        "data": {"skew": 0.0, "augment": "none", **data},
        "model": {"backbone": "cnn", "width": 4, "auxiliary_heads": 2},
        "algorithm": {"name": "mhd", "pool_size": 2, "pool_every": 4},
        "training": {"steps": 8, "batch_size": 4, "public_batch_size": 4, "warmup_steps": 1, "log_every": 4},
        "evaluate": {"every": 8},
    }
    return Experiment(**{**small, **values})


def write_npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def call(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


# The public set from elsewhere


def test_labels_are_known_where_every_class_is_a_private_one(pets: Path, tmp_path: Path) -> None:
    """Classes are matched by name: the first here may be the last there."""
    names = ("owl", "cat")
    labels = np.arange(10) % 2
    file = write_npz(tmp_path / "public.npz", x_train=pixels(labels), y_train=labels, class_names=names)
    public = load(data(source="folder", path=pets, public={"source": "npz", "path": str(file)})).public
    assert public is not None
    images, known = used(public)
    assert classes_by_brightness(images) == labels.tolist()
    assert known == [NAMES.index(names[label]) for label in labels]
    assert public.owners is None


@pytest.mark.parametrize(
    "arrays",
    [
        {"y_train": np.arange(12) % 3, "class_names": ("cat", "dog", "cow")},  # one of another name
        {"y_train": np.arange(12) % 3},  # as many, but without names
        {},
    ],
)
def test_otherwise_they_are_unknown(pets: Path, tmp_path: Path, arrays: dict[str, Any]) -> None:
    file = write_npz(tmp_path / "public.npz", x_train=pixels(np.arange(12) % 3), **arrays)
    dataset = load(data(source="folder", path=pets, public={"source": "npz", "path": str(file)}))
    assert dataset.public is not None
    assert dataset.public.labels is None
    assert dataset.class_names == NAMES


@pytest.mark.parametrize("named", [(), ("private",), ("public",), ("private", "public")])
def test_numbers_are_not_names(tmp_path: Path, named: tuple[str, ...]) -> None:
    """Classes without names match no others, not even classes that are called 0, 1 and 2."""
    labels = np.arange(12) % 3
    for part in ("private", "public"):
        names = {"class_names": ["0", "1", "2"]} if part in named else {}
        write_npz(tmp_path / f"{part}.npz", x_train=pixels(labels), y_train=labels, **names)
    public = {"source": "npz", "path": str(tmp_path / "public.npz")}
    dataset = load(data(source="npz", path=tmp_path / "private.npz", public=public))
    assert dataset.public is not None
    assert (dataset.public.labels is not None) == (len(named) == 2)


def test_numbers_of_clients_are_not_names_either(tmp_path: Path) -> None:
    labels = np.arange(12) % 3
    (tmp_path / "sites").mkdir()
    for name in ("east", "west"):
        write_npz(tmp_path / "sites" / f"{name}.npz", x_train=pixels(labels), y_train=labels)
    public = write_npz(tmp_path / "public.npz", x_train=pixels(labels), y_train=labels, class_names=["0", "1", "2"])
    dataset = load(data(source="clients", path=tmp_path / "sites", public={"source": "npz", "path": str(public)}))
    assert dataset.public is not None
    assert dataset.public.labels is None


def test_the_public_set_takes_nothing_from_the_private_part(pets: Path) -> None:
    """All training samples are private to somebody, all public ones are everybody's."""
    checked = resolve(experiment({"source": "folder", "path": str(pets), "size": 8, "public": {"source": "digits"}}))
    assert len(checked.split.public) == 1437
    assert sum(map(len, checked.split.private)) == 48
    assert checked.sample_counts() == {
        "training": 48,
        "public": 1437,
        "validation": 0,
        "private": 48,
        "unused": 0,
        "test": 12,
    }


def test_who_taught_whom_without_labels(pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teachers are counted, but not whether they were right; tables and pictures do without that."""
    monkeypatch.chdir(tmp_path)
    made = experiment({"source": "folder", "path": str(pets), "size": 8, "public": {"source": "digits"}})
    Path("run.toml").write_text(str(made))
    output = call("run", "run.toml", "--out", "run", "--quiet")
    taught = [event for event in read_events(Path("run")) if isinstance(event, TaughtEvent)]
    assert taught
    for event in taught:
        assert sum(event.own) + np.array(event.others).sum() > 0
        assert (event.own_right, event.others_right) == (event.chosen_by_class, event.right_by_class) == (None, None)
        assert event.missed is None
    assert "Who taught each auxiliary head" in output
    assert "Who taught each class" not in output
    assert "right" not in output.split("Who taught each auxiliary head")[1].split("No head is recommended")[0]
    assert Path("run/plots/taught.png").exists()
    assert {path.name for path in plot_run(Path("run"))} >= {"taught.png", "accuracy.png"}
    assert json.loads(Path("run/summary.json").read_text())["taught"]["own_right"] is None
    call("evaluate", "run")
    call("compare", "run", "run", "--plot", "both.png")
    call("split", "run.toml")


def fedmd(first_public_steps: int) -> dict[str, Any]:
    steps = {"first_public_steps": first_public_steps, "first_private_steps": 2, "digest_steps": 2, "revisit_steps": 2}
    return {"name": "fedmd", **steps, "alignment_samples": 20}


def public_pets(pets: Path, public: Path) -> dict[str, Any]:
    return {"source": "folder", "path": str(pets), "public": {"source": "folder", "path": str(public)}}


def test_classes_of_a_labelled_public_set_stand_behind(pets: Path, tmp_path: Path) -> None:
    """If public labels are trained on, their classes are numbered after the private ones, even with equal names."""
    public = class_folders(tmp_path / "zoo", {"ape": 8, "cat": 8, "elk": 8}, numbers={"ape": 5, "cat": 6, "elk": 7})
    training = {"steps": 10, "batch_size": 4, "public_batch_size": 4, "warmup_steps": 1}
    made = experiment(public_pets(pets, public), algorithm=fedmd(4), training=training)
    ensemble = assemble(made)
    dataset = ensemble.resolved.dataset
    assert dataset.class_names == (*NAMES, "ape", "public cat", "elk")
    assert (dataset.classes, dataset.private_classes) == (6, 3)
    assert dataset.public is not None
    images, labels = used(dataset.public)
    assert [{5: 3, 6: 4, 7: 5}[at] for at in classes_by_brightness(images)] == labels
    assert ensemble.clients[0].model.shape_HC == (1, 6)
    assert ensemble.resolved.label_counts().shape == (2, 6)
    assert ensemble.resolved.label_counts().sum(0).tolist() == [16, 16, 16, 0, 0, 0]
    assert ensemble.resolved.classes_without_samples() == []
    losses = train_by_hand(ensemble)
    assert torch.isfinite(losses).all()
    assert len(train(made).summary["classes"]) == 6


def test_a_first_lesson_is_about_the_public_classes(pets: Path, tmp_path: Path) -> None:
    """After steps on public labels only, a model predicts public classes for private images."""
    public = class_folders(tmp_path / "zoo", {"ape": 20, "elk": 20})
    training = {"steps": 66, "batch_size": 4, "public_batch_size": 16, "warmup_steps": 1, "learning_rate": 0.1}
    algorithm = {**fedmd(60), "first_private_steps": 0, "digest_steps": 3, "revisit_steps": 3}
    made = experiment({**public_pets(pets, public), "size": 8}, algorithm=algorithm, training=training)
    ensemble = assemble(made)
    seen: list[list[int]] = []

    def look(step: int) -> None:
        if step == 60:
            seen.extend(
                predicted_classes(ensemble, client, ensemble.resolved.dataset.test.images) for client in range(2)
            )

    train_by_hand(ensemble, before_exchange=look)
    assert len(seen) == 2
    assert all(label >= 3 for labels in seen for label in labels)


def test_labels_that_nobody_reads_add_no_classes(pets: Path, tmp_path: Path) -> None:
    public = class_folders(tmp_path / "zoo", {"ape": 8, "elk": 8})
    training = {"steps": 6, "batch_size": 4, "public_batch_size": 4, "warmup_steps": 1}
    assert resolve(experiment(public_pets(pets, public), algorithm=fedmd(0), training=training)).dataset.classes == 3


def test_lessons_need_labels(pets: Path, tmp_path: Path) -> None:
    public = class_folders(tmp_path / "zoo", {"ape": 8}) / "ape"
    training = {"steps": 10, "batch_size": 4, "public_batch_size": 4, "warmup_steps": 1}
    made = experiment(public_pets(pets, public), algorithm=fedmd(4), training=training)
    check_line(refusal(lambda: resolve(made)), public, "has no labels, which training on the public set needs")


# Finer classes


FINE = 4  # finer classes of each of three


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """Write twelve fine classes, four of each label; fine class 4 * label + n has 18 + n training samples."""
    fine = np.repeat(np.arange(12), [18 + kind % FINE for kind in range(12)])
    fine = np.random.default_rng(0).permutation(fine)
    tests = np.repeat(np.arange(12), 5)
    return write_npz(
        tmp_path / "animals.npz",
        x_train=pixels(fine),
        y_train=fine,
        coarse_train=fine // FINE,
        x_test=pixels(tests, seed=1),
        y_test=tests,
        coarse_test=tests // FINE,
        coarse_names=NAMES,
    )


def fine_data(animals: Path, **keys: Any) -> dict[str, Any]:
    usual = {"source": "npz", "path": str(animals), "label": "coarse", "fine_label": "y", "partition": "fine"}
    return {**usual, "public_fraction": 0.1, "augment": "none", **keys}


def fine_checked(animals: Path, clients: int, **keys: Any) -> ResolvedExperiment:
    return resolve(experiment(fine_data(animals, **keys), clients=clients))


def fine_of(checked: ResolvedExperiment, client: int) -> NDArray[np.int64]:
    assert checked.dataset.train.fine is not None
    return checked.dataset.train.fine[checked.split.private[client]]


def private_fine(checked: ResolvedExperiment) -> NDArray[np.int64]:
    """They are chosen from all samples that are neither public nor held back."""
    fine = checked.dataset.train.fine
    assert fine is not None
    others = np.concatenate([checked.split.public, checked.split.validation])
    return np.asarray(np.delete(fine, others))


@pytest.mark.parametrize("clients", [2, 4, 6, 9])
def test_a_client_holds_one_finer_class_of_each_label(animals: Path, clients: int) -> None:
    checked = fine_checked(animals, clients)
    assert checked.dataset.class_names == NAMES
    for client in range(clients):
        assert set(fine_of(checked, client).tolist()) == {FINE * label + client % FINE for label in range(3)}
    every = np.concatenate(checked.split.private)
    assert len(set(every.tolist())) == len(every)
    there = np.bincount(private_fine(checked), minlength=12)
    for kind in range(12):
        shares = [(fine_of(checked, client) == kind).sum() for client in range(kind % FINE, clients, FINE)]
        assert sum(shares) == (there[kind] if shares else 0), "nobody's only where nobody is to hold it"
        assert not shares or max(shares) - min(shares) <= 1, "sharers share evenly"


def test_samples_per_class_are_an_upper_limit(animals: Path) -> None:
    every, few = fine_checked(animals, 4), fine_checked(animals, 4, samples_per_class=5)
    assert few.label_counts().tolist() == [[5, 5, 5]] * 4
    for client in range(4):
        assert set(few.split.private[client].tolist()) < set(every.split.private[client].tolist())
    plenty = fine_checked(animals, 4, samples_per_class=1_000)
    assert plenty.label_counts().tolist() == every.label_counts().tolist()
    labels = every.dataset.train.known_labels[every.split.private[0]]
    first = np.concatenate([every.split.private[0][labels == label][:5] for label in range(3)])
    assert few.split.private[0].tolist() != np.sort(first).tolist(), "drawn, not the first"


def test_finer_classes_must_be_known(animals: Path) -> None:
    made = experiment(fine_data(animals, fine_label=None), clients=4)
    check_line(refusal(lambda: resolve(made)), 'data.partition = "fine"', "data.fine_label")
    check_line(refusal(data(**fine_data(animals, fine_label="finer"))), animals, "array finer_train is missing")


def test_too_many_clients_for_the_finer_classes(animals: Path) -> None:
    made = experiment(fine_data(animals), clients=200)
    check_line(refusal(lambda: resolve(made)), "clients = 200", "is left without samples; use fewer clients")


def predicted_classes(ensemble: Ensemble, client: int, images: Images) -> list[int]:
    """Return the class that the main head of a client predicts for each image."""
    model = ensemble.clients[client].model
    was = model.training
    model.eval()
    with torch.no_grad():
        logits_BHC, _ = model(model_input(torch.from_numpy(np.asarray(images)), torch.float32))
    model.train(was)
    answers: list[int] = logits_BHC[:, 0].argmax(-1).tolist()
    return answers


def judged(ensemble: Ensemble) -> Evaluation:
    """Return the evaluation on the test set."""
    part = ensemble.parts[-1]
    return evaluation_of(ensemble.clients, part.name, [score(client.model, part) for client in ensemble.clients])


def test_private_accuracy_is_weighted_by_the_finest_class(animals: Path) -> None:
    """It is the accuracy on each fine class times its share among the client's samples, by hand."""
    ensemble = assemble(experiment(fine_data(animals), clients=3))
    train_by_hand(ensemble)
    measured, test = judged(ensemble), ensemble.resolved.dataset.test
    assert test.fine is not None
    seen = set()
    for client in range(3):
        right = np.array(predicted_classes(ensemble, client, test.images)) == test.known_labels
        own = fine_of(ensemble.resolved, client)
        by_hand = sum((own == kind).mean() * right[test.fine == kind].mean() for kind in np.unique(own))
        by_label = sum((own // FINE == n).mean() * right[test.known_labels == n].mean() for n in range(3))
        assert measured.private_accuracy[client][0] == pytest.approx(by_hand, abs=1e-12)
        assert measured.shared_accuracy[client][0] == pytest.approx(right.mean(), abs=1e-12)
        seen.add(by_hand == pytest.approx(by_label, abs=1e-6))
    assert False in seen, "the finer classes make a difference"


# Clients with data of their own


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Write three clients with different shares of each class and test parts of different sizes."""
    root = tmp_path / "sites"
    shares: dict[str, list[int]] = {"east": [20, 5, 5], "north": [3, 14, 14], "west": [10, 0, 12]}
    for seed, (name, counts) in enumerate(shares.items()):
        labels, tests = np.repeat(np.arange(3), counts), np.repeat(np.arange(3), [max(1, n // 3) for n in counts])
        root.mkdir(exist_ok=True)
        x_train, x_test = pixels(labels, seed=seed), pixels(tests, seed=10 + seed)
        write_npz(root / f"{name}.npz", x_train=x_train, y_train=labels, x_test=x_test, y_test=tests, class_names=NAMES)
    return root


def test_private_accuracy_is_that_on_the_own_test_part(sites: Path) -> None:
    """Shared accuracy is that on all test parts together."""
    made = experiment(
        {"source": "clients", "path": str(sites), "public": "fraction", "public_fraction": 0.2}, clients=3
    )
    ensemble = assemble(made)
    train_by_hand(ensemble)
    measured, part = judged(ensemble), ensemble.parts[-1]
    on = accuracy_on(ensemble.clients, [score(client.model, part) for client in ensemble.clients])
    tests = [np.load(file) for file in sorted(sites.glob("*.npz"))]
    images, labels = (np.concatenate([test[name] for test in tests]) for name in ("x_test", "y_test"))
    for client, test in enumerate(tests):
        own = np.array(predicted_classes(ensemble, client, test["x_test"])) == test["y_test"]
        every = np.array(predicted_classes(ensemble, client, images)) == labels
        assert measured.private_accuracy[client][0] == pytest.approx(own.mean(), abs=1e-12)
        assert measured.shared_accuracy[client][0] == pytest.approx(every.mean(), abs=1e-12)
        assert measured.private_samples[client] == pytest.approx(len(own))
        for other, theirs in enumerate(tests):
            right = np.array(predicted_classes(ensemble, client, theirs["x_test"])) == theirs["y_test"]
            assert on[client][0][other] == pytest.approx(right.mean(), abs=1e-12)


def test_clients_keep_what_they_brought(sites: Path) -> None:
    """Clients also keep their names; only samples that become public leave them."""
    checked = resolve(
        experiment({"source": "clients", "path": str(sites), "public": "fraction", "public_fraction": 0.2}, clients=3)
    )
    assert [checked.client_name(client) for client in range(3)] == ["east", "north", "west"]
    for client, file in enumerate(sorted(sites.glob("*.npz"))):
        brought = {image.tobytes() for image in np.load(file)["x_train"]}
        own = {image.tobytes() for image in checked.dataset.train.images[checked.split.private[client]]}
        assert own < brought
    assert checked.sample_counts()["unused"] == 0


def test_nothing_is_taken_from_clients_unasked(sites: Path) -> None:
    """Without `public/` there is no public set; a method that needs one says so."""
    alone = {"name": "separate"}
    checked = resolve(experiment({"source": "clients", "path": str(sites)}, clients=3, algorithm=alone))
    assert checked.sample_counts()["public"] == 0
    assert checked.sample_counts()["private"] == checked.sample_counts()["training"]
    with pytest.raises(ConfigurationError, match="there is no public set; name one"):
        resolve(experiment({"source": "clients", "path": str(sites)}, clients=3))


def test_every_client_has_its_share_of_the_validation_part(sites: Path) -> None:
    config = {"source": "clients", "path": str(sites), "public": "none", "validation_fraction": 0.25}
    checked = resolve(experiment(config, clients=3, algorithm={"name": "separate"}))
    owners = checked.dataset.train.owners
    assert owners is not None
    held = np.bincount(owners[checked.split.validation], minlength=3)
    brought = np.bincount(owners[checked.dataset.train.used])
    assert held.tolist() == np.rint(0.25 * brought).astype(int).tolist()
    few = experiment({**config, "validation_fraction": 0.01}, clients=3, algorithm={"name": "separate"})
    with pytest.raises(
        ConfigurationError, match=r"client east: data\.validation_fraction = 0\.01: no validation samples"
    ):
        resolve(few)


def test_names_of_clients_in_tables(sites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = experiment(
        {"source": "clients", "path": str(sites), "public": "fraction", "public_fraction": 0.2}, clients=3
    )
    Path("run.toml").write_text(str(made))
    for output in (call("split", "run.toml"), call("run", "run.toml", "--out", "run", "--quiet")):
        check_line(output, "east", "north", "west")
    assert read_events(Path("run"))[0]["client_names"] == ["east", "north", "west"]


def test_a_test_part_is_set_aside_from_every_client_and_class(sites: Path) -> None:
    for file in sites.glob("*.npz"):
        arrays = dict(np.load(file))
        write_npz(file, **{name: array for name, array in arrays.items() if not name.endswith("_test")})
    config = data(source="clients", path=sites, test_fraction=0.4)
    dataset, again = load(config), load(config)
    owners, labels = dataset.test.owners, dataset.test.known_labels
    assert owners is not None
    counts = [[int(((owners == client) & (labels == label)).sum()) for label in range(3)] for client in range(3)]
    assert counts == [[8, 2, 2], [1, 6, 6], [4, 0, 5]]
    assert dataset.set_aside == 0.4
    train_images = {image.tobytes() for image in used(dataset.train)[0]}
    assert train_images.isdisjoint(image.tobytes() for image in used(dataset.test)[0])
    assert np.array_equal(dataset.test.names, again.test.names)


# Images that are in two places


def overlapping(root: Path) -> dict[str, Any]:
    """Write two clients and a public set with the common images that the test below counts."""
    root.mkdir()
    a, b, tests, others = (pixels(np.arange(n) % 3, seed=seed) for n, seed in ((30, 1), (24, 2), (9, 3), (20, 4)))
    b[[0, 3, 6]] = a[[0, 3, 6]]  # three are held by two clients
    b[9] = b[12]  # one twice by the same, which is no matter
    tests[[0, 1]] = a[[3, 1]]  # two test images of the first are private ones, one of them of both clients
    others[[0, 1, 2, 3]] = a[[3, 4, 5, 7]]  # four public images are private ones
    others[5] = tests[2]  # one public image is a test image; and others[0] is tests[0]
    for name, images, at in (("north", a, slice(0, 5)), ("south", b, slice(5, 9))):
        labels, tested = np.arange(len(images)) % 3, (np.arange(9) % 3)[at]
        write_npz(
            root / f"{name}.npz", x_train=images, y_train=labels, x_test=tests[at], y_test=tested, class_names=NAMES
        )
    write_npz(root / "public.npz", x_train=others)
    return {"source": "clients", "path": str(root)}


DUPLICATES = [
    "2 of 9 test images are private training images too (the same pixels)",
    "2 of 9 test images are public images too (the same pixels)",
    "3 of 50 different private images belong to two or more clients (the same pixels)",
    "4 of 20 public images are a client's private ones too (the same pixels)",
]


def test_images_that_are_in_two_places_are_counted(tmp_path: Path) -> None:
    checked = resolve(experiment(overlapping(tmp_path / "sites")))
    assert notes_of(checked) == DUPLICATES


def test_they_are_told_before_and_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(str(experiment(overlapping(tmp_path / "sites"))))
    for output in (call("split", "run.toml"), call("run", "run.toml", "--out", "run", "--quiet")):
        assert [line for line in output.splitlines() if line.startswith("note: ")] == [f"note: {n}" for n in DUPLICATES]
    assert read_events(Path("run"))[0]["notes"] == DUPLICATES


def test_where_nothing_is_in_two_places_nothing_is_said(pets: Path) -> None:
    made = experiment({"source": "folder", "path": str(pets), "validation_fraction": 0.1})
    assert not [note for note in notes_of(resolve(made)) if "the same pixels" in note]


def test_public_images_that_are_private_on_purpose_are_not_noted(pets: Path) -> None:
    """`data.public = "all"` says so; a test image among them is still one."""
    (pets / "test" / "cat" / "0.png").write_bytes((pets / "cat" / "0.png").read_bytes())
    checked = resolve(experiment({"source": "folder", "path": str(pets), "public": "all"}))
    assert notes_of(checked) == [
        "1 of 12 test images are private training images too (the same pixels)",
        "1 of 12 test images are public images too (the same pixels)",
    ]

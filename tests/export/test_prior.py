"""What an export says of its client's labels: all that the private task needs, and nothing for the shared one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from manyheads import ConfigurationError, Experiment, RunError, load_model, train
from manyheads.client.balance import log_prior
from manyheads.client.own_statistics import for_own_task
from manyheads.evaluation.head_choice import Recommendation, adds_prior
from manyheads.export.write import export
from manyheads.runs.read import read_start
from manyheads.training.result import Result
from tests.conftest import TINY

IMAGES = torch.randint(0, 17, (40, 8, 8, 1), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


@pytest.fixture(scope="module", params=[0.0, 1.0, 2.0], ids=["not balanced", "balanced", "more than balanced"])
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    wanted = Experiment(**TINY).with_values(training={"balance": request.param})
    return train(wanted, tmp_path_factory.mktemp("made") / "run")


def folder_of(result: Result) -> Path:
    assert result.folder is not None
    return result.folder


def prior_of(result: Result, client: int) -> torch.Tensor | None:
    """Return the prior from the counts of labels that the run wrote down."""
    started, balance = read_start(folder_of(result)), result.experiment.training.balance
    assert started is not None
    if not balance:
        return None
    return torch.from_numpy(log_prior(np.array(started.label_counts[client]), balance)).float()


@pytest.mark.parametrize("client", [0, 2])
@pytest.mark.parametrize("head", [None, 0, 1])
def test_every_way_to_a_classifier_gives_the_same(
    result: Result, client: int, head: int | None, tmp_path: Path
) -> None:
    export(folder_of(result), client, tmp_path / "both")
    for task in ("private", "shared"):
        export(folder_of(result), client, tmp_path / task, task=task)
        expected = result.classifier(client, head, task)(IMAGES)
        found = {
            "run": load_model(folder_of(result), client, head, task),
            "export": load_model(tmp_path / "both", head=head, task=task),
            "export for this task": load_model(tmp_path / task, head=head, task=task),
        }
        for where, classify in found.items():
            assert torch.equal(classify(IMAGES), expected), (where, task)


def with_prior(result: Result, client: int, head: int, prior: torch.Tensor | None) -> torch.Tensor:
    """Return logits for the private task: with the prior, and with BatchNorm statistics of the client's own samples."""
    with for_own_task(result.clients[client]):
        logits: torch.Tensor = result.classifier(client, head, "shared")(IMAGES)
    return logits if prior is None else logits + prior


@pytest.mark.parametrize("client", [0, 2])
def test_for_the_private_task_the_prior_is_added_to_logits(result: Result, client: int) -> None:
    own, prior = result.summary.clients[client].deploy, prior_of(result, client)
    assert own is not None
    for head in range(3):
        expected = with_prior(result, client, head, prior)
        assert torch.equal(result.classifier(client, head, "private")(IMAGES), expected)
    plain = result.classifier(client, own.private, "shared")(IMAGES)
    chosen = result.classifier(client, None, "private")(IMAGES)
    assert torch.equal(chosen, with_prior(result, client, own.private, prior) if own.prior else plain)
    assert torch.equal(
        result.classifier(client, None, "shared")(IMAGES), result.classifier(client, own.shared, "shared")(IMAGES)
    )


def test_what_is_exported_for_the_shared_task_says_nothing_of_labels(result: Result, tmp_path: Path) -> None:
    out, own = tmp_path / "out", result.summary.clients[0]
    export(folder_of(result), 0, out, task="shared")
    described = json.loads((out / "model.json").read_text())
    assert not described.keys() & {"log_prior", "samples", "primary_labels", "private_accuracy", "private_with_prior"}
    card = (out / "README.md").read_text()
    assert "rivate training samples" not in card
    assert "log_prior" not in card
    assert f": {own.samples}" not in card
    assert {path.name for path in out.iterdir()} == {"model.json", "README.md", "model.safetensors"}
    for head in (None, 0):
        with pytest.raises(ConfigurationError, match=r'^task = "private": .* for the shared task only$') as error:
            load_model(out, head=head, task="private")
        assert "\n" not in str(error.value)


def test_what_is_exported_for_the_private_task_holds_the_prior(result: Result, tmp_path: Path) -> None:
    own, prior = result.summary.clients[1], prior_of(result, 1)
    for task in ("private", None):
        out = tmp_path / str(task)
        export(folder_of(result), 1, out, task=task)
        described = json.loads((out / "model.json").read_text())
        assert (described["samples"], described["primary_labels"]) == (own.samples, own.primary_labels)
        assert described["private_accuracy"] == own.private_task
        card = (out / "README.md").read_text()
        assert f"Private training samples: {own.samples}" in card
        if prior is None:
            assert described["log_prior"] is None
            assert "log_prior" not in card
        else:
            assert own.deploy is not None
            assert torch.equal(torch.tensor(described["log_prior"]), prior)
            assert f"how frequent they are there is {'added' if own.deploy.prior else 'not added'} (`log_prior`" in card
    with pytest.raises(ConfigurationError, match=r'^task = "shared": .* for the private task only$'):
        load_model(tmp_path / "private")


def test_a_prior_that_fits_no_model_is_refused(result: Result, tmp_path: Path) -> None:
    export(folder_of(result), 0, tmp_path / "out")
    path = tmp_path / "out" / "model.json"
    whole = json.loads(path.read_text())
    for prior in ([-1.0] * 9, [0.5] * 10, [float("nan")] * 10, [float("-inf")] * 10, ["x"] * 10, 5):
        path.write_text(json.dumps(whole | {"log_prior": prior}))
        with pytest.raises(RunError, match=r"log_prior|a prior of other classes") as error:
            load_model(tmp_path / "out", task="private")
        assert "\n" not in str(error.value)


def test_when_the_prior_is_added() -> None:
    plain, shifted = Recommendation(1, 2, prior=False), Recommendation(0, 2, prior=True)
    for head, deploy, expected in (
        (None, None, True),
        (None, shifted, True),
        (None, plain, False),
        (0, plain, True),
        (1, shifted, True),
    ):
        assert adds_prior(head, "private", deploy) == expected
        assert not adds_prior(head, "shared", deploy)

"""BatchNorm statistics of a client's own samples: what they are, where they count, what is saved of them."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from manyheads import Experiment, RunError, load_model, train
from manyheads.client.client import Client
from manyheads.client.own_statistics import AS_MANY, MOST_SAMPLES, for_own_task, own_statistics
from manyheads.evaluation.accuracy import score
from manyheads.export.write import export
from manyheads.files import digest
from manyheads.runs.manifest import CHECKPOINTS, read_manifest
from manyheads.setup.build import Ensemble, assemble
from manyheads.training.observer import SilentObserver
from tests.contracts import train_by_hand

BLANK = torch.zeros(4, 8, 8, 1, dtype=torch.uint8)


@pytest.fixture
def trained(tiny: Experiment) -> Client:
    ensemble = assemble(tiny)
    train_by_hand(ensemble)
    return ensemble.clients[0]


def first_layer(client: Client) -> tuple[nn.BatchNorm2d, Tensor, Tensor]:
    """Return the first BatchNorm, and its mean and variance."""
    layer = next(module for module in client.model.modules() if isinstance(module, nn.BatchNorm2d))
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer, layer.running_mean.clone(), layer.running_var.clone()


def test_they_are_means_over_private_batches(trained: Client) -> None:
    """By hand, for the first layer: the mean over batches of each batch's mean and variance, and the running ones."""
    layer, *before = first_layer(trained)
    seen: list[Tensor] = []
    size = trained.training.batch_size
    batches = -(-min(MOST_SAMPLES, len(trained.private)) // size)
    assert batches > 1
    window = trained.private.window(0, batches, size)
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    trained.model.eval()
    with torch.no_grad():
        for batch in range(batches):
            trained.model(trained.private.rows(window, batch, torch.float32).images)
    hook.remove()
    trained.own_statistics = own_statistics(trained)
    with for_own_task(trained):
        _, mean, variance = first_layer(trained)
    share = len(trained.private) / (len(trained.private) + AS_MANY)
    means, variances = ([getattr(x, of)((0, 2, 3)) for x in seen] for of in ("mean", "var"))
    torch.testing.assert_close(mean, share * torch.stack(means).mean(0) + (1.0 - share) * before[0])
    torch.testing.assert_close(variance, share * torch.stack(variances).mean(0) + (1.0 - share) * before[1])
    assert not torch.allclose(mean, before[0])


def test_taking_them_changes_nothing_else(trained: Client) -> None:
    trained.model.train()
    values, integers, momentum = trained.state.values.clone(), trained.state.copy_integers(), trained.momentum.clone()
    layer, *_ = first_layer(trained)
    rate = layer.momentum
    one, two = own_statistics(trained), own_statistics(trained)
    assert one is not None
    assert two is not None
    assert torch.equal(one, two), "the same whenever they are taken"
    trained.own_statistics = one
    with contextlib.suppress(ZeroDivisionError), for_own_task(trained):
        assert not torch.equal(trained.state.values, values)
        raise ZeroDivisionError
    assert torch.equal(trained.state.values, values)
    assert torch.equal(trained.momentum, momentum)
    assert all(torch.equal(integers[name], tensor) for name, tensor in trained.state.integers.items())
    assert trained.model.training
    assert layer.training
    assert layer.momentum == rate


def test_a_stop_in_the_middle_leaves_the_client_as_it_was(trained: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    values, integers = trained.state.values.clone(), trained.state.copy_integers()
    layer, *_ = first_layer(trained)
    rate, rows, calls = layer.momentum, trained.private.rows, iter(range(1))

    def stopped(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return rows(*arguments)

    monkeypatch.setattr(trained.private, "rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        own_statistics(trained)
    assert torch.equal(trained.state.values, values)
    assert all(torch.equal(integers[name], tensor) for name, tensor in trained.state.integers.items())
    assert layer.momentum == rate


@pytest.mark.parametrize("name", ["Untracked", "FrozenNorm"])
def test_a_model_whose_batch_norm_does_not_train_has_none(tiny: Experiment, name: str) -> None:
    """One without statistics, and one that keeps those it came with."""
    own = {"backbone": [f"tests.models.lab:{name}"] * 3}
    assert [own_statistics(client) for client in assemble(tiny.with_values(model=own)).clients] == [None] * 3


class Watch(SilentObserver):
    ensemble: Ensemble

    def started(self, ensemble: Ensemble, step: int) -> None:
        self.ensemble = ensemble


@pytest.mark.parametrize(
    ("values", "has"),
    [
        ({}, True),
        ({"algorithm": {"name": "fedmd", "first_private_steps": 4, "digest_steps": 4, "revisit_steps": 4}}, True),
        ({"algorithm": {"name": "separate"}}, False),
        ({"algorithm": {"name": "averaging"}}, False),
        ({"training": {"balance": 0.0}}, False),
    ],
)
def test_who_has_them(tiny: Experiment, values: dict[str, Any], has: bool) -> None:
    """Whoever trains on public data, too, and is balanced, so that its own task is another one."""
    for client in train(tiny.with_values(**values)).clients:
        assert (client.own_statistics is not None) == has


def test_private_accuracy_with_the_prior_is_measured_with_them(tiny: Experiment) -> None:
    watch = Watch()
    result = train(tiny, observer=watch)
    for client, own in zip(result.clients, result.summary.clients, strict=True):
        part = watch.ensemble.parts[-1]
        with for_own_task(client):
            with_own = score(client.model, part, client.log_prior_C).private_with_prior(client.kind_weights)
        without = score(client.model, part, client.log_prior_C).private_with_prior(client.kind_weights)
        assert own.private_with_prior == with_own != without
        assert own.shared_accuracy == score(client.model, part).shared_accuracy()


def images() -> Tensor:
    return torch.randint(0, 256, (16, 8, 8, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("backbone", ["cnn", "tests.models.lab:SharedNorm"])
def test_classifiers_of_the_own_task_have_them_wherever_they_come_from(
    backbone: str, tiny: Experiment, tmp_path: Path
) -> None:
    result = train(tiny.with_values(model={"backbone": [backbone] * 3}), tmp_path / "run")
    export(tmp_path / "run", 1, tmp_path / "export")
    export(tmp_path / "run", 1, tmp_path / "shared", task="shared")
    client, pixels = result.clients[1], images()
    plain = result.classifier(1, head=0, task="shared")(pixels)
    for_own = result.classifier(1, head=0, task="private")(pixels)
    assert client.log_prior_C is not None
    assert not torch.allclose(for_own, plain + client.log_prior_C)
    for place in ("run", "export"):
        number = {"client": 1} if place == "run" else {}
        for task, expected in (("private", for_own), ("shared", plain)):
            found = load_model(tmp_path / place, head=0, task=task, **number)(pixels)  # type: ignore[arg-type]
            torch.testing.assert_close(found, expected)
    assert torch.equal(result.classifier(1, head=0, task="shared")(pixels), plain), "its weights are still its own"
    names = safetensors.torch.load_file(tmp_path / "shared" / "model.safetensors")
    assert not any(name.startswith("own statistics") for name in names)


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.full((1,), torch.nan)])
def test_statistics_that_fit_no_model_are_refused(bad: Tensor, tiny: Experiment, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(tiny, folder)
    manifest = read_manifest(folder, ended=True)
    name = manifest.clients[0].state
    place = folder / CHECKPOINTS / name
    tensors = safetensors.torch.load_file(place)
    wanted = tensors["own statistics"]
    tensors["own statistics"] = bad if len(bad) == 3 else bad.expand_as(wanted).contiguous()
    place.write_bytes(safetensors.torch.save(tensors))
    sealed = manifest.model_copy(update={"files": {**manifest.files, name: digest(place.read_bytes())}})
    (folder / CHECKPOINTS / "manifest.json").write_text(sealed.seal())
    with pytest.raises(RunError, match="own statistics"):
        load_model(folder, client=0, head=0, task="private")
    load_model(folder, client=0, head=0, task="shared")(BLANK)

"""Averaging of weights, compared with means made by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor

from manyheads import ConfigurationError, Experiment, train
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.resolve import resolve
from tests.contracts import train_by_hand


def averaging(tiny: Experiment, **values: Any) -> Experiment:
    return tiny.with_values(algorithm={"name": "averaging", "average_every": 3}).with_values(**values)


def three_steps(experiment: Experiment) -> tuple[Ensemble, list[Tensor], list[Tensor]]:
    """Return clients before their first averaging, with their weights and momenta then."""
    ensemble = assemble(experiment)
    exchange(ensemble, step=0)
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(0, 3), lambda _: None)
    values = [client.state.values.clone() for client in ensemble.clients]
    return ensemble, values, [client.momentum.clone() for client in ensemble.clients]


def mean(values: list[Tensor], shares: list[int]) -> Tensor:
    total = sum(share * value.double() for share, value in zip(shares, values, strict=True))
    assert isinstance(total, Tensor)
    return total / sum(shares)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_fedavg_is_the_weighted_mean_and_the_same_bits_for_all(tiny: Experiment, weighting: str) -> None:
    ensemble, before, momentum = three_steps(averaging(tiny, algorithm={"weighting": weighting}))
    samples = [len(client.private) for client in ensemble.clients]
    assert len(set(samples)) > 1
    expected = mean(before, samples if weighting == "samples" else [1, 1, 1])
    other = mean(before, [1, 1, 1] if weighting == "samples" else samples)
    exchange(ensemble, step=3)
    for client, own in zip(ensemble.clients, before, strict=True):
        assert torch.equal(client.state.values, ensemble.clients[0].state.values)
        torch.testing.assert_close(client.state.values.double(), expected, rtol=1e-5, atol=1e-7)
        assert not torch.allclose(client.state.values.double(), other, rtol=1e-5, atol=1e-7)
        assert not torch.equal(client.state.values, own)
    for client, own in zip(ensemble.clients, momentum, strict=True):
        assert torch.equal(client.momentum, own), "momentum is each client's own"
    assert not torch.equal(momentum[0], momentum[1])


def test_statistics_of_batchnorm_are_averaged_like_weights(tiny: Experiment) -> None:
    ensemble, _, _ = three_steps(averaging(tiny))
    names = [name for name, _ in ensemble.clients[0].model.named_buffers() if "running" in name]
    assert len(names) == 6
    before = {name: [client.model.get_buffer(name).clone() for client in ensemble.clients] for name in names}
    exchange(ensemble, step=3)
    for name, values in before.items():
        assert not torch.equal(values[0], values[1])
        expected = mean(values, [len(client.private) for client in ensemble.clients])
        for client in ensemble.clients:
            torch.testing.assert_close(client.model.get_buffer(name).double(), expected, rtol=1e-5, atol=1e-7)


def test_the_optimizer_continues_from_the_mean(tiny: Experiment) -> None:
    """After averaging, the module's parameters are still views of the flat tensor."""
    ensemble, _, _ = three_steps(averaging(tiny))
    exchange(ensemble, step=3)
    client = ensemble.clients[1]
    before = client.state.values.clone()
    PlainTrainer().train([client], ensemble.resolved.algorithm, Window(3, 4), lambda _: None)
    assert not torch.equal(client.state.values, before)
    slot = next(slot for slot in client.state.layout if slot.name == "heads.weight")
    assert torch.equal(
        client.model.heads.weight.flatten(),
        client.state.values[slot.offset : slot.offset + client.model.heads.weight.numel()],
    )


def test_all_start_from_the_same_weights(tiny: Experiment) -> None:
    started = [client.state.values for client in assemble(averaging(tiny)).clients]
    assert all(torch.equal(values, started[0]) for values in started)
    other = assemble(averaging(tiny, seed=1)).clients[0].state.values
    assert not torch.equal(other, started[0])
    apart = [client.state.values for client in assemble(tiny).clients]
    assert not torch.equal(apart[0], apart[1])


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_gossip_on_a_cycle_is_the_mean_with_the_one_it_learns_from(tiny: Experiment, weighting: str) -> None:
    ensemble, before, _ = three_steps(
        averaging(tiny, clients=4, graph={"name": "cycle"}, algorithm={"weighting": weighting})
    )
    samples = [len(client.private) if weighting == "samples" else 1 for client in ensemble.clients]
    exchange(ensemble, step=3)
    for i, client in enumerate(ensemble.clients):
        j = (i + 1) % 4
        expected = mean([before[i], before[j]], [samples[i], samples[j]])
        torch.testing.assert_close(client.state.values.double(), expected, rtol=1e-5, atol=1e-7)
        backwards = mean([before[i], before[i - 1]], [samples[i], samples[i - 1]])
        assert not torch.allclose(client.state.values.double(), backwards, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("average_every", [3, 7, 10, 50])
def test_a_run_ends_averaged_and_is_judged_averaged(tiny: Experiment, average_every: int) -> None:
    """It averages at the end of 10 steps, whether or not `average_every` divides them."""
    short = averaging(tiny, training={"steps": 10}, algorithm={"average_every": average_every})
    result = train(short)
    assert {client.state.values.numpy().tobytes() for client in result.clients} == {
        result.clients[0].state.values.numpy().tobytes()
    }
    judged = result.summary["clients"]
    assert judged[0]["shared_accuracy"] == judged[1]["shared_accuracy"] == judged[2]["shared_accuracy"]


def test_bytes_are_one_mean_from_everybody_or_one_model_from_each_neighbour(tiny: Experiment) -> None:
    """Averagings are at steps 3, 6, 9 and 10."""
    short = averaging(tiny, clients=4, training={"steps": 10})
    for graph, models in (("complete", [1, 1, 1, 1]), ("cycle", [1, 1, 1, 1]), ("chain", [1, 2, 2, 1])):
        ensemble = assemble(short.with_values(graph={"name": graph}))
        train_by_hand(ensemble)
        size = ensemble.clients[0].snapshot(0).nbytes
        assert [client.bytes_received for client in ensemble.clients] == [4 * size * number for number in models]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"width": [4, 4, 6]}, r"client 0 \(cnn, width 4\) and client 2 \(cnn, width 6\) cannot be averaged"),
        ({"backbone": ["cnn", "resnet8", "cnn"]}, r"client 0 \(cnn, width 4\) and client 1 \(resnet8, width 4\)"),
    ],
    ids=str,
)
def test_neighbours_with_different_models_are_refused(tiny: Experiment, model: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        resolve(averaging(tiny, model=model))
    assert str(error.value).startswith('algorithm.name = "averaging": ')
    assert "\n" not in str(error.value)
    resolve(tiny.with_values(model=model))


def test_different_models_on_different_islands_are_fine(tiny: Experiment) -> None:
    model = {"width": [4, 4, 6, 6], "backbone": ["cnn", "cnn", "resnet8", "resnet8"]}
    apart = averaging(tiny, clients=4, model=model, training={"steps": 5})
    result = train(apart.with_values(graph={"name": "islands", "size": 2}))
    values = [client.state.values for client in result.clients]
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[2], values[3])
    assert values[0].shape != values[2].shape
    with pytest.raises(ConfigurationError, match=r"client 1 .* and client 2"):
        resolve(apart.with_values(graph={"name": "cycle"}))


def test_nothing_public_is_read(tiny: Experiment) -> None:
    ensemble = assemble(averaging(tiny, data={"public_fraction": 0.0, "private_fraction": 0.6}))
    assert all(client.public is None for client in ensemble.clients)
    assert ensemble.resolved.heads == 1
    assert train_by_hand(ensemble).shape == (20, 3)

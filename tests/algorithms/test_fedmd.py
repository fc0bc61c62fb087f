"""FedMD, compared with a consensus, losses and phases made by hand."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads import ConfigurationError, Experiment, TrainingError, train
from manyheads.algorithms.fedmd import FedMD
from manyheads.client.client import Batch, Client
from manyheads.config.knobs import RunSize
from manyheads.data.batches import Rows
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.exchange.request import PublicRows
from manyheads.runs.events import EvaluationEvent, Event, judged_after
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.resolve import resolve
from manyheads.training.observer import SilentObserver
from tests.contracts import stored_labels, train_by_hand, weights

ROUND = {"name": "fedmd", "first_private_steps": 4, "digest_steps": 5, "revisit_steps": 3}


def fedmd(tiny: Experiment, knobs: dict[str, Any] | None = None, **values: Any) -> Experiment:
    """Return an experiment of four private steps and two rounds of eight."""
    return tiny.with_values(algorithm=ROUND).with_values(algorithm=knobs or {}).with_values(**values)


def train_to(ensemble: Ensemble, stop: int, sureness: float = 1.0) -> None:
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(0, stop), lambda _: None)
    for client in ensemble.clients:
        client.model.heads.weight.data.mul_(sureness)
    exchange(ensemble, step=stop)


def centred_logits(client: Client, rows: Rows) -> Tensor:
    client.model.eval()
    with torch.no_grad():
        logits: Tensor = client.model(rows.images)[0][:, 0].double()
    client.model.train()
    return logits - logits.mean(-1, keepdim=True)


def public_rows(client: Client, positions: np.ndarray[Any, Any], view: int = 0) -> Rows:
    assert client.public is not None
    return client.public.rows_in_view(positions, view, client.state.values.dtype)


def consensus_by_hand(clients: list[Client], rows: Rows) -> Tensor:
    return torch.stack([centred_logits(client, rows) for client in clients]).mean(0)


def test_the_consensus_is_the_mean_of_centred_logits_of_everybody(tiny: Experiment) -> None:
    ensemble = assemble(fedmd(tiny))
    train_to(ensemble, 4)
    assert len(ensemble.resolved.split.public) == 431
    for client in ensemble.clients:  # all 431 samples: fewer than `alignment_samples`
        expected = consensus_by_hand(ensemble.clients, public_rows(client, np.arange(431)))
        assert client.memory["consensus"].shape == (431, 10)
        torch.testing.assert_close(client.memory["consensus"].double(), expected, rtol=1e-4, atol=1e-4)
        own = centred_logits(client, public_rows(client, np.arange(431)))
        assert not torch.allclose(client.memory["consensus"].double(), own, atol=1e-2)


def test_the_consensus_of_sure_models_is_the_mean_of_their_logits_too(tiny: Experiment) -> None:
    """Probabilities of 1e-9 are nothing unusual after training; their logarithms must be those of the models."""
    ensemble = assemble(fedmd(tiny))
    train_to(ensemble, 4, sureness=40.0)
    client = ensemble.clients[0]
    rows = public_rows(client, np.arange(431))
    spread = torch.stack([centred_logits(other, rows) for other in ensemble.clients])
    assert 20.0 < float(spread.amax(-1).sub(spread.amin(-1)).max()) < 80.0
    expected = consensus_by_hand(ensemble.clients, rows)
    torch.testing.assert_close(client.memory["consensus"].double(), expected, rtol=1e-3, atol=1e-3)


def test_diverged_models_have_no_consensus(tiny: Experiment) -> None:
    ensemble = assemble(fedmd(tiny, {"first_private_steps": 0, "digest_steps": 10, "revisit_steps": 10}))
    *diverged, last = ensemble.clients
    for client in diverged:
        client.state.values.fill_(1e38)
    exchange(ensemble, step=0)
    assert last.refused == len(diverged)
    assert last.memory["consensus"].isfinite().all()
    last.state.values.fill_(1e38)
    with pytest.raises(TrainingError, match=r"^step 0, client-0: no scores of any client are numbers; lower training"):
        exchange(ensemble, step=0)


def test_each_round_draws_an_alignment_subset_that_is_the_same_for_all(tiny: Experiment) -> None:
    knobs = {"alignment_samples": 40}
    ensemble = assemble(fedmd(tiny, knobs, data={"augment": "crop-flip", "public_views": 2}))
    subsets = []
    for start in (4, 12):
        plans = [ensemble.resolved.algorithm.plan(client, start, start + 5) for client in ensemble.clients]
        seen = [set(np.asarray(plan.public).ravel().tolist()) for plan in plans]
        assert seen[0] == seen[1] == seen[2]  # 5 steps of 16 samples: the 40 samples twice
        assert len(seen[0]) == 40
        assert not np.array_equal(np.asarray(plans[0].public), np.asarray(plans[1].public)), "in an order of its own"
        assert set(np.asarray(plans[0].view).tolist()) == {start == 12}  # each round shows the next view
        subsets.append(seen[0])
    assert subsets[0] != subsets[1]
    train_to(ensemble, 4)
    client = ensemble.clients[2]
    expected = consensus_by_hand(ensemble.clients, public_rows(client, np.array(sorted(subsets[0]))))
    torch.testing.assert_close(client.memory["consensus"].double(), expected, rtol=1e-4, atol=1e-4)


def batch_of(ensemble: Ensemble, client: Client, step: int) -> Batch:
    return client.batches(step, step + 1, ensemble.resolved.algorithm.plan(client, step, step + 1)).at(step)


def losses_of(ensemble: Ensemble, client: Client, batch: Batch, step: int) -> dict[str, float]:
    return {name: term.item() for name, term in ensemble.resolved.algorithm.losses(client, batch, step).items()}


def test_the_digest_loss_is_the_distance_to_the_consensus(tiny: Experiment) -> None:
    ensemble = assemble(fedmd(tiny, {"nu_digest": 0.5, "alignment_samples": 40}))
    train_to(ensemble, 4)
    client = ensemble.clients[1]
    batch = batch_of(ensemble, client, 6)
    consensus = consensus_by_hand(ensemble.clients, batch.public)  # of exactly the rows of this batch
    terms = losses_of(ensemble, client, batch, 6)
    logits = client.model(batch.public.images)[0][:, 0].detach().double()
    centred = logits - logits.mean(-1, keepdim=True)
    expected = 0.5 * sum(abs(float(centred[b, c] - consensus[b, c])) for b in range(16) for c in range(10))
    assert terms["digest"] == pytest.approx(expected / 16, rel=1e-4)
    assert terms["cross_entropy"] == 0.0


def test_phases_follow_each_other(tiny: Experiment) -> None:
    """Three steps on the labelled public set and two private ones come first, then rounds of 2 + 3."""
    knobs = {"first_public_steps": 3, "first_private_steps": 2, "digest_steps": 2, "revisit_steps": 3}
    ensemble = assemble(fedmd(tiny, knobs, training={"steps": 15, "balance": 0.0}))
    client, seen = ensemble.clients[0], []
    assert sorted(ensemble.resolved.exchange_steps) == [5, 10]
    for step in range(15):
        exchange(ensemble, step)
        batch = batch_of(ensemble, client, step)
        terms = losses_of(ensemble, client, batch, step)
        on = {
            "public": cross_entropy(client.model(batch.public.images)[0][:, 0], batch.public_labels()),
            "private": cross_entropy(client.model(batch.private.images)[0][:, 0], batch.labels),
        }
        fits = [name for name, value in on.items() if terms["cross_entropy"] == pytest.approx(value.item(), rel=1e-5)]
        assert (terms["digest"] > 0.0) == (not fits)
        seen += fits or ["digest"]
    assert seen == ["public"] * 3 + ["private"] * 2 + (["digest"] * 2 + ["private"] * 3) * 2


def test_pixels_that_a_phase_does_not_need_are_not_gathered(tiny: Experiment) -> None:
    ensemble = assemble(fedmd(tiny))
    exchange(ensemble, 4)
    for step, used, unused in ((0, "private", "public"), (4, "public", "private"), (9, "private", "public")):
        batch = batch_of(ensemble, ensemble.clients[0], step)
        losses_of(ensemble, ensemble.clients[0], batch, step)
        assert used in vars(batch)
        assert unused not in vars(batch)


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (12, [(9, "digest"), (12, "revisit"), (17, "digest"), (20, "revisit")]),
        (1_000, [(17, "digest"), (20, "revisit")]),
    ],
)
def test_clients_are_judged_after_digest_and_after_revisit(
    tiny: Experiment, every: int, expected: list[tuple[int, str]]
) -> None:
    """The last digest and the last revisit before a regular evaluation are evaluated, too."""

    class Listener(SilentObserver):
        def __init__(self) -> None:
            self.events: list[EvaluationEvent] = []

        def happened(self, event: Event) -> None:
            if isinstance(event, EvaluationEvent):
                self.events.append(event)

    listener = Listener()
    result = train(fedmd(tiny, evaluate={"every": every}), observer=listener)
    judged = [(event.step, event.part, event.after) for event in listener.events]
    assert judged == [(step, part, after) for step, after in expected for part in ("validation", "test")]
    last = judged_after(listener.events)
    for after in ("digest", "revisit"):
        accuracy = float(np.mean([by_head[0] for by_head in last[after].shared_accuracy]))
        assert result.summary["after"][after]["shared_accuracy"] == [pytest.approx(accuracy)]
    assert result.summary["shared_accuracy"] == result.summary["after"]["revisit"]["shared_accuracy"]


@pytest.mark.parametrize("steps", [3, 11, 13, 19, 21, 1_000])
def test_steps_that_do_not_fit_are_refused_with_some_that_do(tiny: Experiment, steps: int) -> None:
    """Runs of 4 + 8 per round have 12, 20, 28, ... steps."""
    with pytest.raises(ConfigurationError) as error:
        resolve(fedmd(tiny, training={"steps": steps, "warmup_steps": 0}))
    assert "\n" not in str(error.value)
    refused = re.search(r"^training\.steps = (\d+): .* use (\d+)(?: or (\d+))?$", str(error.value))
    assert refused
    assert int(refused.group(1)) == steps
    offered = [int(number) for number in refused.groups()[1:] if number]
    assert offered == ([12] if steps < 12 else [steps - (steps - 4) % 8, steps - (steps - 4) % 8 + 8])
    for fits in offered:
        resolve(fedmd(tiny, training={"steps": fits, "warmup_steps": 0}))


def test_every_island_has_a_consensus_of_its_own(tiny: Experiment) -> None:
    ensemble = assemble(fedmd(tiny, clients=4, graph={"name": "islands", "size": 2}))
    train_to(ensemble, 4)
    rows = public_rows(ensemble.clients[0], np.arange(431))
    for island in (ensemble.clients[:2], ensemble.clients[2:]):
        expected = consensus_by_hand(island, rows)
        for client in island:
            torch.testing.assert_close(client.memory["consensus"].double(), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(island[0].memory["consensus"], island[1].memory["consensus"])
    assert not torch.allclose(ensemble.clients[0].memory["consensus"], ensemble.clients[2].memory["consensus"])
    everybody = consensus_by_hand(ensemble.clients, rows)
    assert not torch.allclose(ensemble.clients[0].memory["consensus"].double(), everybody, atol=1e-2)


@pytest.mark.parametrize("first_public_steps", [0, 2])
def test_labels_of_the_public_set_are_read_only_if_it_is_labelled(tiny: Experiment, first_public_steps: int) -> None:
    knobs = {"first_public_steps": first_public_steps, "first_private_steps": 4 - first_public_steps}
    ensembles = [assemble(fedmd(tiny, knobs, training={"steps": 12})) for _ in range(2)]
    client, public = ensembles[1].clients[0], torch.from_numpy(ensembles[1].resolved.split.public)
    assert client.public is not None
    for labels in (stored_labels(client.private), stored_labels(client.public)):  # everybody's
        labels[public] = 9 - labels[public]
    for ensemble in ensembles:
        train_by_hand(ensemble)
    assert (weights(ensembles[0]) == weights(ensembles[1])) == (first_public_steps == 0)


def test_different_models_may_learn_from_each_other(tiny: Experiment) -> None:
    model = {"backbone": ["cnn", "resnet8", "cnn"], "width": [4, 3, 5]}
    ensemble = assemble(fedmd(tiny, model=model, training={"steps": 12}))
    train_by_hand(ensemble)
    assert torch.equal(ensemble.clients[0].memory["consensus"], ensemble.clients[1].memory["consensus"])
    assert all(not client.model.maps for client in ensemble.clients)


def test_bytes_are_one_consensus_from_everybody_or_one_table_from_each_neighbour(tiny: Experiment) -> None:
    """Two rounds send 40 rows of 10 + 4 * 10 bytes beside the header."""
    for graph, tables in (("complete", [1, 1, 1, 1]), ("chain", [1, 2, 2, 1])):
        ensemble = assemble(fedmd(tiny, {"alignment_samples": 40}, clients=4, graph={"name": graph}))
        train_by_hand(ensemble)
        first = ensemble.clients[0]
        assert first.schema is not None
        rows = PublicRows(((np.arange(40), 0),))
        size = len(first.schema.encode(first.snapshot(12), rows))
        assert 40 * 50 < size < 40 * 50 + 500
        received = [client.bytes_received for client in ensemble.clients]
        assert received == pytest.approx([2 * size * number for number in tables], abs=10)  # a step has more digits


def test_its_own_knobs_are_the_defaults() -> None:
    usual = FedMD().with_defaults(RunSize(steps=1_200, nodes=8, classes=10))
    assert (usual.first_private_steps, usual.digest_steps, usual.revisit_steps) == (60, 60, 54)
    made = FedMD(first_public_steps=10, first_private_steps=100, digest_steps=50, revisit_steps=50)
    assert made.exchange_steps(310) == range(110, 310, 100)


@given(st.integers(3, 5_000), st.integers(0, 3))
def test_rounds_that_are_not_given_are_whole(steps: int, public: int) -> None:
    made = FedMD(first_public_steps=min(public, steps - 2)).with_defaults(RunSize(steps, 8, 10))
    made.check(steps, classes=10)


def test_steps_on_public_data_use_up_no_private_samples(tiny: Experiment) -> None:
    """Private training takes the private stream without gaps, however long a digest is."""
    ensemble = assemble(fedmd(tiny))
    client, algorithm = ensemble.clients[1], ensemble.resolved.algorithm
    private_steps = [*range(4), *range(9, 12), *range(17, 20)]
    seen = []
    for start, stop in ((0, 4), (4, 11), (11, 20)):  # windows that do not end with phases
        batches = client.batches(start, stop, algorithm.plan(client, start, stop))
        seen += [batches.at(step).private.samples.tolist() for step in range(start, stop) if step in private_steps]
    assert seen == client.private.window(0, len(private_steps), 16).samples_SB.tolist()


def test_labelled_training_goes_through_the_views(tiny: Experiment) -> None:
    data = {"augment": "crop-flip", "public_views": 3}
    knobs = {"first_public_steps": 100, "first_private_steps": 0}
    ensemble = assemble(fedmd(tiny, knobs, data=data, training={"steps": 108}))
    view = ensemble.resolved.algorithm.plan(ensemble.clients[0], 0, 100).view
    assert view is not None
    assert view.tolist() == [step * 16 // 431 % 3 for step in range(100)]


def test_labels_of_private_samples_are_not_public_labels(tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match="would train on the labels of everybody's private samples"):
        resolve(fedmd(tiny, {"first_public_steps": 8, "first_private_steps": 4}, data={"public": "all"}))
    assert resolve(fedmd(tiny, data={"public": "all"})).algorithm == FedMD(
        first_private_steps=4, digest_steps=5, revisit_steps=3
    )

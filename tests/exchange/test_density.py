"""The density model of private embeddings, and what others see of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from manyheads import Experiment
from manyheads.client.client import Client
from manyheads.data.arrays import content_hashes
from manyheads.data.batches import Rows
from manyheads.data.views import model_input
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.errors import TrainingError
from manyheads.exchange.density import SHRINKAGE, Density, DensityConfidence
from manyheads.exchange.message import DIGEST, MAGIC, decode
from manyheads.setup.build import Ensemble, assemble
from tests.contracts import SNAPSHOTS, stored_images, stored_labels, train_by_hand, weights, whole_snapshot


def clusters(seed: int, labels: int, each: int, width: int) -> tuple[Tensor, Tensor]:
    """Return samples around one direction per label, and their labels."""
    rng = torch.Generator().manual_seed(seed)
    centres_LE = torch.eye(width, dtype=torch.float64)[:labels] * 10.0
    member_R = torch.arange(labels).repeat_interleave(each)
    noise_RE = torch.randn(len(member_R), width, generator=rng, dtype=torch.float64)
    return centres_LE[member_R] + noise_RE, member_R


@given(seed=st.integers(0, 2**31), labels=st.integers(1, 4), width=st.integers(5, 12))
def test_own_samples_are_typical_and_far_ones_are_not(seed: int, labels: int, width: int) -> None:
    embedding_RE, label_R = clusters(seed, labels, 100, width)
    density = Density.fit(embedding_RE, label_R, 5)
    own = density.typicality(embedding_RE)
    assert own.median() == own.max() == 1.0
    assert own.min() == pytest.approx(np.exp(-1.0))
    assert own.mean() > 0.8
    again = density.typicality(clusters(seed + 1, labels, 100, width)[0])
    assert again.mean() > 0.6
    nowhere = torch.eye(width, dtype=torch.float64)[labels:]
    far = density.typicality(torch.cat([nowhere, -nowhere, -embedding_RE]))
    assert far.max() < 0.05


@given(seed=st.integers(0, 2**31))
def test_the_distance_is_that_of_mahalanobis_to_the_nearest_label(seed: int) -> None:
    embedding_RE, label_R = clusters(seed, 3, 20, 6)
    asked_BE = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    unit = (embedding_RE / embedding_RE.norm(dim=-1, keepdim=True)).numpy()
    means = [unit[label_R == label].mean(0) for label in range(3)]
    apart = np.concatenate([unit[label_R == label] - means[label] for label in range(3)])
    covariance = apart.T @ apart / len(apart)
    covariance = (1.0 - SHRINKAGE) * covariance + SHRINKAGE * np.trace(covariance) / 6 * np.eye(6)
    precision = np.linalg.inv(covariance)
    expected = []
    for asked in asked_BE.numpy():
        direction = asked / np.linalg.norm(asked)
        expected.append(min(float(np.sqrt((direction - m) @ precision @ (direction - m))) for m in means))
    density = Density.fit(embedding_RE, label_R, 5)
    assert density.distance(asked_BE).tolist() == pytest.approx(expected, rel=1e-3)
    distances = density.distance(embedding_RE).sort().values
    assert density.scale_2.tolist() == [distances[len(distances) // 2].item(), distances[-1].item()]
    torch.testing.assert_close(density.distance(asked_BE * 7.0), density.distance(asked_BE))  # only direction counts


@pytest.mark.parametrize("samples", [1, 2])
def test_very_few_samples_are_enough(samples: int) -> None:
    embedding_RE = torch.randn(samples, 5)
    density = Density.fit(embedding_RE, torch.zeros(samples, dtype=torch.int64), 2)
    assert density.typicality(embedding_RE).isfinite().all()
    assert density.typicality(-embedding_RE).max() < 0.5


def test_a_diverged_model_is_refused_in_one_line(tiny: Experiment) -> None:
    ensemble = assemble(with_density(tiny))
    ensemble.clients[1].state.values.fill_(1e38)
    with pytest.raises(TrainingError, match=r"^step 4, client 1: an embedding is not a number, .*; lower training"):
        exchange(ensemble, step=4)


def test_labels_without_samples_change_nothing_but_the_shape() -> None:
    """A captured step knows addresses: a density of another shape would have to be captured anew."""
    embedding_RE, label_R = clusters(0, 3, 20, 6)
    asked_BE = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    three, many = Density.fit(embedding_RE, label_R, 3), Density.fit(embedding_RE, 2 * label_R + 1, 9)
    assert many.means_LE.shape == (9, 6)
    torch.testing.assert_close(many.distance(asked_BE), three.distance(asked_BE))
    torch.testing.assert_close(many.scale_2, three.scale_2)


def test_it_is_measured_in_full_precision_within_autocast() -> None:
    embedding_RE, label_R = clusters(0, 3, 20, 6)
    embedding_RE = embedding_RE.float()
    expected = Density.fit(embedding_RE, label_R, 3)
    with torch.autocast("cpu", torch.bfloat16):
        density = Density.fit(embedding_RE, label_R, 3)
        assert torch.equal(density.typicality(embedding_RE), expected.typicality(embedding_RE))
        low = Density.fit(embedding_RE.bfloat16(), label_R, 3)
    assert low.whitening_EE.dtype == torch.float32
    torch.testing.assert_close(low.scale_2, expected.scale_2, rtol=0.1, atol=0.1)


def test_only_the_main_head_is_scaled() -> None:
    embedding_RE, label_R = clusters(0, 3, 40, 6)
    density = Density.fit(embedding_RE, label_R, 5)
    p_BHC = torch.rand(8, 3, 4, dtype=torch.float64).softmax(-1)
    asked_BE = torch.cat([embedding_RE[:4], -embedding_RE[:4]])
    confidence_BH = density.confidence(p_BHC, asked_BE)
    assert torch.equal(confidence_BH[:, 1:], p_BHC[:, 1:].amax(-1))
    assert torch.equal(confidence_BH[:, 0], p_BHC[:, 0].amax(-1) * density.typicality(asked_BE))
    assert confidence_BH[4:, 0].max() < 0.05 < confidence_BH[:4, 0].min()


def test_a_density_is_saved_and_restored() -> None:
    density = Density.fit(*clusters(0, 3, 40, 6), 3)
    saved = CONFIDENCE.saved(vars(density))
    found = Density(**CONFIDENCE.loaded({**saved, "something else": torch.zeros(1)}))
    asked_BE = torch.randn(5, 6, dtype=torch.float64)
    assert torch.equal(found.typicality(asked_BE), density.typicality(asked_BE))
    assert CONFIDENCE.loaded({"something else": torch.zeros(1)}) == {}


CONFIDENCE = DensityConfidence()


def with_density(tiny: Experiment, exchange_by: str = "weights") -> Experiment:
    return tiny.with_values(algorithm={"confidence": "density", "exchange": exchange_by})


def after_four_steps(experiment: Experiment) -> Ensemble:
    """Return an ensemble that trained for four steps and exchanged."""
    ensemble = assemble(experiment)
    exchange(ensemble, step=0)
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(0, 4), lambda _: None)
    exchange(ensemble, step=4)
    return ensemble


def private_embedding(client: Client) -> tuple[Tensor, Tensor]:
    """Return the embeddings of all private samples as they are, in evaluation mode, and their labels."""
    own = torch.from_numpy(client.private.indices)
    client.model.eval()
    with torch.no_grad():
        embedding_RE: Tensor = client.model(model_input(client.private.pixels[own], torch.float32))[1]
    client.model.train()
    return embedding_RE, client.private.labels(own)


def public_rows(client: Client, count: int) -> Rows:
    assert client.public is not None
    return client.public.rows_in_view(np.arange(count), 0, torch.float32)


def remembered(client: Client) -> Density:
    return Density(**CONFIDENCE.loaded(client.memory))


def test_an_exchange_leaves_every_client_with_its_own_density(tiny: Experiment) -> None:
    ensemble = assemble(with_density(tiny))
    assert all(client.memory == {} for client in ensemble.clients)
    ensemble = after_four_steps(with_density(tiny))
    for client in ensemble.clients:
        found, fitted = remembered(client), Density.fit(*private_embedding(client), 10)
        assert len(torch.unique(found.means_LE, dim=0)) == len(
            np.unique(stored_labels(client.private)[client.private.indices])
        )
        torch.testing.assert_close(found.means_LE, fitted.means_LE, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.scale_2, fitted.scale_2, rtol=1e-2, atol=1e-3)
        assert client.model.training
    assert not torch.equal(remembered(ensemble.clients[0]).scale_2, remembered(ensemble.clients[1]).scale_2)


def test_measuring_changes_nothing_else(tiny: Experiment) -> None:
    ensemble = assemble(with_density(tiny))
    before = weights(ensemble)
    for client in ensemble.clients:
        ensemble.resolved.algorithm.prepare(client, 4)
        assert not any(tensor.requires_grad for tensor in client.memory.values())
    assert weights(ensemble) == before, "running statistics are not for measurements to change"


def test_each_exchange_fits_the_density_to_private_samples_only(tiny: Experiment) -> None:
    ensemble, changed = after_four_steps(with_density(tiny)), assemble(with_density(tiny))
    first = remembered(ensemble.clients[0])
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(4, 8), lambda _: None)
    assert torch.equal(remembered(ensemble.clients[0]).scale_2, first.scale_2)
    exchange(ensemble, step=8)
    assert not torch.equal(remembered(ensemble.clients[0]).scale_2, first.scale_2)

    client, usual = changed.clients[0], assemble(with_density(tiny)).clients[0]
    others = np.setdiff1d(np.arange(len(client.private.pixels)), client.private.indices)
    stored_images(client.private)[others] = 0
    stored_labels(client.private)[others] = 0
    for one in (client, usual):
        changed.resolved.algorithm.prepare(one, 0)
    assert all(torch.equal(client.memory[name], usual.memory[name]) for name in usual.memory)
    assert len(usual.memory) == 3


def test_a_checkpoint_carries_what_its_owner_measured(tiny: Experiment) -> None:
    ensemble = after_four_steps(with_density(tiny))
    client = ensemble.clients[1]
    checkpoint, rows = client.snapshot(4), public_rows(client, 30)
    outputs = checkpoint.outputs(rows)
    assert outputs.confidence_BH is not None
    assert outputs.embedding_BE is not None
    typicality_B = remembered(client).typicality(outputs.embedding_BE)
    torch.testing.assert_close(outputs.confidence_BH[:, 0], outputs.probabilities_BHC[:, 0].amax(-1) * typicality_B)
    assert torch.equal(outputs.confidence_BH[:, 1:], outputs.probabilities_BHC[:, 1:].amax(-1))
    plain = assemble(tiny).clients[1].snapshot(0)
    assert plain.outputs(rows).confidence_BH is None
    assert checkpoint.nbytes == plain.nbytes + sum(tensor.nbytes for tensor in vars(remembered(client)).values())


def test_a_table_transmits_it_in_float16(tiny: Experiment) -> None:
    ensemble = after_four_steps(with_density(tiny, "predictions"))
    client = ensemble.clients[1]
    rows = public_rows(client, 30)
    direct, received = client.snapshot(4).outputs(rows), whole_snapshot(client, 4).outputs(rows)
    assert direct.confidence_BH is not None
    assert received.confidence_BH is not None
    assert received.confidence_BH.shape == (30, 2)  # the last head is not sent
    assert torch.equal(received.confidence_BH, direct.confidence_BH[:, :2].half().float())
    assert not torch.equal(received.confidence_BH[:, 0], received.probabilities_BHC[:, 0].amax(-1))


@pytest.mark.parametrize("confidence", ["density", "max_probability"])
def test_nothing_private_is_in_the_message(tiny: Experiment, confidence: str) -> None:
    """Every byte belongs to a row of the public set: its name, its view, and for each head 8 classes and a confidence.

    The size does not depend on how much private data there is, and the names are those of public samples.
    """
    ensemble = after_four_steps(with_density(tiny, "predictions").with_values(algorithm={"confidence": confidence}))
    names = content_hashes(ensemble.resolved.dataset.train.images[ensemble.resolved.split.public])
    sizes = set()
    for client in ensemble.clients:
        assert client.schema is not None
        message = client.schema.encode(client.snapshot(4), client.schema.every_row)
        table = decode(message)
        heads, width = 2, ensemble.resolved.embedding_widths[0]
        row = 8 + 2 + heads * 8 * (1 + 2) + (heads * 2 if confidence == "density" else 0) + width
        beside = len(MAGIC) + DIGEST + 4 + len(table.header.encoded)
        assert len(message) == beside + len(ensemble.resolved.split.public) * row
        assert set(table.arrays["names"].tolist()) == set(names.tolist())
        sizes.add(len(message))
    assert len({len(client.private) for client in ensemble.clients}) > 1
    assert len(sizes) == 1


def test_what_is_measured_changes_who_teaches(tiny: Experiment) -> None:
    """The same is true of tables. Before an exchange nothing is measured yet."""
    losses = {}
    for name in ("density", "max_probability"):
        for by in SNAPSHOTS:
            knobs = {"confidence": name, "exchange": by, "ramp": {"hold": 0.0, "rise": 0.0}}
            losses[name, by] = train_by_hand(assemble(tiny.with_values(algorithm=knobs, training={"steps": 5})))
    for by in SNAPSHOTS:
        assert not torch.allclose(losses["density", by][:, 2::3], losses["max_probability", by][:, 2::3], rtol=1e-3)
    empty = with_density(tiny).with_values(algorithm={"pool_start": "empty"})
    ensemble = assemble(empty)
    exchange(ensemble, step=0)
    assert all(client.memory == {} for client in ensemble.clients)
    PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, Window(0, 2), lambda _: None)

"""Eq. 1 as a whole, put together by hand from the outputs of the drawn snapshots."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads import Experiment
from manyheads.algorithms.mhd import MHD
from manyheads.client.plan import WindowPlan
from manyheads.engine.plain import exchange
from manyheads.setup.build import assemble


@pytest.mark.parametrize("entries", [[0], [2], [1, 2]])
def test_the_loss_is_made_of_the_drawn_targets(tiny: Experiment, entries: list[int]) -> None:
    # Three neighbours fill the pool with three different teachers, so that it matters which ones are asked.
    experiment = tiny.with_values(
        clients=4,
        algorithm={"nu_emb": 0.5, "nu_aux": 2.0, "select": "most_confident"},
        training={"balance": 0.0},
    )
    ensemble = assemble(experiment, dtype=torch.float64)
    algorithm, client = ensemble.resolved.algorithm, ensemble.clients[0]
    assert isinstance(algorithm, MHD)
    exchange(ensemble, step=0)
    plan = WindowPlan(targets=np.array([entries]), arrays={"ramp": np.array([0.25])})
    batch = client.batches(0, 1, plan).at(0)
    assert batch.public is not None
    terms = algorithm.losses(client, batch, 0)

    private, _ = client.model(batch.private.images)
    logits, embedding = (output.detach() for output in client.model(batch.public.images))
    foreign = [client.pool.entries[entry].outputs(batch.public) for entry in entries]
    prediction = torch.zeros((), dtype=torch.float64)
    for b in range(len(logits)):
        for k in range(1, logits.shape[1]):
            choices = [logits[b, k - 1].softmax(-1)] + [other.probabilities_BHC[b, k - 1] for other in foreign]
            target = max(choices, key=lambda p: float(p.max()))
            prediction = prediction - (target * logits[b, k].log_softmax(-1)).sum() / len(logits)
    unit = embedding / embedding.norm(dim=-1, keepdim=True)
    theirs = [other.embedding_BE for other in foreign if other.embedding_BE is not None]
    assert len(theirs) == len(entries)
    distance = sum(((unit - other / other.norm(dim=-1, keepdim=True)) ** 2).sum(-1).mean() for other in theirs)
    assert terms["cross_entropy"].item() == pytest.approx(cross_entropy(private[:, 0], batch.labels).item())
    assert terms["prediction"].item() == pytest.approx(0.25 * 2.0 * prediction.item())
    assert terms["embedding"].item() == pytest.approx(0.25 * 0.5 * float(distance))

"""The probe: the accuracy of a fresh linear head on a frozen embedding."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.client.client import Client
from manyheads.data.arrays import Indices
from manyheads.evaluation.accuracy import EvaluationSet
from manyheads.models.client_model import ClientModel, embeddings

PROBE_ITERATIONS, PROBE_DECAY = 200, 1e-4


def probe(model: ClientModel, training: EvaluationSet, test: EvaluationSet) -> float:
    """Return the shared accuracy of a fresh linear head on the frozen embedding, fitted to everybody's private data.

    This is about what the embedding allows, the paper's upper bound on its heads. Logistic regression on standardised
    embeddings: full-batch L-BFGS from zero, with a little weight decay.
    """
    train_NE, test_NE = (embeddings(model, part.pixels, part.samples) for part in (training, test))
    mean_E, spread_E = train_NE.mean(0), train_NE.std(0).clamp_min(1e-6)
    train_NE, test_NE = (train_NE - mean_E) / spread_E, (test_NE - mean_E) / spread_E
    weight_EC = train_NE.new_zeros(train_NE.shape[1], model.shape_HC[1], requires_grad=True)
    bias_C = train_NE.new_zeros(model.shape_HC[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight_EC, bias_C], max_iter=PROBE_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits_NC = train_NE @ weight_EC + bias_C
        value = cross_entropy(logits_NC, training.labels) + PROBE_DECAY * weight_EC.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return float(((test_NE @ weight_EC + bias_C).argmax(-1) == test.labels).double().mean())


def probe_all(clients: Sequence[Client], private: Indices, test: EvaluationSet, classes: int) -> list[float]:
    """Return the probe of each client; `private` are everybody's private samples."""
    one = clients[0]
    samples = torch.from_numpy(private).to(one.private.pixels.device)
    labels = one.private.labels(samples)
    known = EvaluationSet("private", one.private.pixels, samples, labels, labels, classes)
    return [probe(client.model, known, test) for client in clients]

"""What a fresh linear head on a frozen embedding would reach."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.client.client import Client
from manyheads.data.arrays import Indices
from manyheads.evaluation.accuracy import Part
from manyheads.models.client_model import ClientModel, embeddings

PROBE_ITERATIONS, PROBE_DECAY = 200, 1e-4


def probe(model: ClientModel, training: Part, test: Part) -> float:
    """The shared accuracy of a fresh linear head on the frozen embedding, fitted with all private data of everybody.

    About what the embedding allows: the paper's upper bound on what its heads can know. Logistic regression on
    standardised embeddings: full-batch L-BFGS from zero, with a little weight decay.
    """
    known_NE, asked_NE = (embeddings(model, part.pixels, part.samples) for part in (training, test))
    middle, spread = known_NE.mean(0), known_NE.std(0).clamp_min(1e-6)
    known_NE, asked_NE = (known_NE - middle) / spread, (asked_NE - middle) / spread
    weight_EC = known_NE.new_zeros(known_NE.shape[1], model.shape_HC[1], requires_grad=True)
    bias_C = known_NE.new_zeros(model.shape_HC[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight_EC, bias_C], max_iter=PROBE_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits_NC = known_NE @ weight_EC + bias_C
        value = cross_entropy(logits_NC, training.labels) + PROBE_DECAY * weight_EC.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return float(((asked_NE @ weight_EC + bias_C).argmax(-1) == test.labels).double().mean())


def probe_all(clients: Sequence[Client], private: Indices, test: Part, classes: int) -> list[float]:
    """For each of some clients: the shared accuracy that its embedding would allow, fitted on everybody's `private`."""
    one = clients[0]
    samples = torch.from_numpy(private).to(one.private.pixels.device)
    labels = one.private.labels(samples)
    known = Part("private", one.private.pixels, samples, labels, labels, classes)
    return [probe(client.model, known, test) for client in clients]

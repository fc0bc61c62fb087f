"""Accuracy of every head of every client on a part, and heads that have collapsed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.client.client import Client
from manyheads.data.batches import Pixels
from manyheads.data.views import model_input
from manyheads.models.client_model import CHUNK, ClientModel, evaluating

COLLAPSED_PERPLEXITY = 1.5  # a head whose mean prediction spreads over fewer classes than this has collapsed


@dataclass(frozen=True)
class EvaluationSet:
    """The labelled samples of an evaluation: the test set, or the validation part.

    Each has a kind: its finest known class, or the client that brought it. A client draws from a mixture of kinds.
    """

    name: str
    pixels: Pixels
    samples: Tensor  # which of them
    labels: Tensor  # of these
    kinds: Tensor
    number_of_kinds: int


@dataclass(frozen=True)
class Scores:
    """The correct answers of a model's heads, counted by kind (D of them), so that any weighting can follow."""

    correct_HD: NDArray[np.int64]
    samples_D: NDArray[np.int64]
    samples_C: NDArray[np.int64]  # by class
    mean_probability_HC: NDArray[np.float64]

    def shared_accuracy(self) -> list[float]:
        """Return the share of correct answers, by head."""
        return [float(x) for x in self.correct_HD.sum(1) / self.samples_D.sum()]

    def private_accuracy(self, weight_D: NDArray[np.float64]) -> list[float]:
        """Return the accuracy on a client's mixture of kinds (D weights), by head.

        The weight of kinds without samples here goes to the others.
        """
        by_kind_HD = self.correct_HD / np.maximum(self.samples_D, 1)
        return [float(x) for x in by_kind_HD @ self._weights(weight_D)]

    def accuracy_on(self, kind_weights: Sequence[NDArray[np.float64]]) -> list[list[float]]:
        """Return `private_accuracy` on the mixture of each of several clients: heads x clients."""
        return np.array([self.private_accuracy(weight_D) for weight_D in kind_weights]).T.tolist()  # type: ignore[no-any-return]

    def private_samples(self, weight_D: NDArray[np.float64]) -> float:
        """Return how many samples, drawn by these weights, would be as precise as the weighted accuracy."""
        weight_D = self._weights(weight_D)
        return 1.0 / float((weight_D**2 / np.maximum(self.samples_D, 1)).sum()) if weight_D.any() else 0.0

    def _weights(self, weight_D: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return weights of the kinds that have samples here, with sum 1; all zero if none has."""
        weight_D = np.where(self.samples_D > 0, weight_D, 0.0)
        return weight_D / weight_D.sum() if weight_D.any() else weight_D

    def collapsed_heads(self, label_distribution: NDArray[np.float64]) -> list[tuple[int, int]]:
        """Return (head, class) for heads that predict one class for nearly everything.

        The perplexity of the mean prediction is compared with the right one: for the main head that of the client's
        labels, for the others that of this set. A client with one class is right to predict one.
        """
        right = perplexity(self.samples_C / self.samples_C.sum())
        found = []
        for head, mean_C in enumerate(self.mean_probability_HC):
            expected = min(right, perplexity(label_distribution)) if head == 0 else right
            if perplexity(mean_C) < min(COLLAPSED_PERPLEXITY, 0.8 * expected):
                found.append((head, int(mean_C.argmax())))
        return found


def perplexity(p: NDArray[np.float64]) -> float:
    """Return the number of classes over which a distribution effectively spreads: exp(entropy).

    >>> perplexity(np.array([0.25, 0.25, 0.25, 0.25])), perplexity(np.array([1.0, 0.0]))
    (4.0, 1.0)
    """
    positive = p[p > 0.0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


@torch.no_grad()
def score(model: ClientModel, part: EvaluationSet) -> Scores:
    """Count the correct answers of every head, in evaluation mode."""
    heads, classes = model.shape_HC
    like = next(model.parameters())
    correct = torch.zeros(heads, part.number_of_kinds, dtype=torch.int64, device=like.device)
    mean = torch.zeros(heads, classes, dtype=torch.float64, device=like.device)
    with evaluating(model):
        chunks = zip(*(torch.split(of, CHUNK) for of in (part.samples, part.labels, part.kinds)), strict=True)
        for samples, labels, kinds in chunks:
            logits_BHC, _ = model(model_input(part.pixels[samples], like.dtype))
            hit_HB = (logits_BHC.argmax(-1) == labels[:, None]).T.long()
            correct.scatter_add_(1, kinds.expand(heads, -1), hit_HB)
            mean += logits_BHC.softmax(-1).double().sum(0)
    by_kind = torch.bincount(part.kinds, minlength=part.number_of_kinds)
    by_class = torch.bincount(part.labels, minlength=classes)
    found = (correct, by_kind, by_class, mean / len(part.labels))
    return Scores(*(tensor.cpu().numpy() for tensor in found))


@dataclass(frozen=True)
class Evaluation:
    """The accuracy of all clients on one part: clients x heads."""

    part: str
    private_accuracy: list[list[float]]
    shared_accuracy: list[list[float]]
    private_samples: list[float]  # by client: how many samples private accuracy rests on
    collapsed: list[tuple[int, int, int]]  # client, head, class


def evaluation_of(clients: Sequence[Client], part: str, scores: Sequence[Scores]) -> Evaluation:
    """Return the evaluation that follows from the counts of every client."""
    pairs = list(zip(clients, scores, strict=True))
    return Evaluation(
        part,
        [s.private_accuracy(client.kind_weights) for client, s in pairs],
        [s.shared_accuracy() for _, s in pairs],
        [s.private_samples(client.kind_weights) for client, s in pairs],
        [(c.index, head, label) for c, s in pairs for head, label in s.collapsed_heads(c.label_distribution)],
    )


def accuracy_on(clients: Sequence[Client], scores: Sequence[Scores]) -> list[list[list[float]]]:
    """Return the accuracy of every client on the private distribution of every client: clients x heads x clients."""
    kind_weights = [client.kind_weights for client in clients]
    return [own.accuracy_on(kind_weights) for own in scores]

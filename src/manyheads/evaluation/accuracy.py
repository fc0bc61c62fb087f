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
class Part:
    """Labelled samples to judge by: the test set, or the validation part.

    Each is of a kind: its finest known class, or the client that brought it. What a client draws is a mixture of kinds.
    """

    name: str
    pixels: Pixels
    samples: Tensor  # which of them
    labels: Tensor  # of these
    kinds: Tensor
    number_of_kinds: int


@dataclass(frozen=True)
class Scores:
    """What one model's heads did on a part, counted by kind (D of them), so that any weighting can follow."""

    correct_HD: NDArray[np.int64]
    samples_D: NDArray[np.int64]
    samples_C: NDArray[np.int64]  # by class
    mean_probability_HC: NDArray[np.float64]

    def shared_accuracy(self) -> list[float]:
        """By head: the plain share of correct answers."""
        return [float(x) for x in self.correct_HD.sum(1) / self.samples_D.sum()]

    def private_accuracy(self, judged_by_D: NDArray[np.float64]) -> list[float]:
        """By head: accuracy by kind of sample, weighted as the client draws them.

        Kinds that the part does not hold cannot be judged; their weight goes to the others.
        """
        by_kind_HD = self.correct_HD / np.maximum(self.samples_D, 1)
        return [float(x) for x in by_kind_HD @ self._weights(judged_by_D)]

    def accuracy_on(self, judged_by: Sequence[NDArray[np.float64]]) -> list[list[float]]:
        """Heads x clients: `private_accuracy` on the distribution of each of several clients."""
        return np.array([self.private_accuracy(judged_by_D) for judged_by_D in judged_by]).T.tolist()  # type: ignore[no-any-return]

    def private_samples(self, judged_by_D: NDArray[np.float64]) -> float:
        """How many samples, drawn as the client draws, would judge as precisely as this weighting does."""
        weight_D = self._weights(judged_by_D)
        return 1.0 / float((weight_D**2 / np.maximum(self.samples_D, 1)).sum()) if weight_D.any() else 0.0

    def _weights(self, judged_by_D: NDArray[np.float64]) -> NDArray[np.float64]:
        """The distribution over the kinds that the part holds; all zero where it holds none of them."""
        weight_D = np.where(self.samples_D > 0, judged_by_D, 0.0)
        return weight_D / weight_D.sum() if weight_D.any() else weight_D

    def collapsed_heads(self, label_distribution: NDArray[np.float64]) -> list[tuple[int, int]]:
        """(head, class) where a head is sure of one class for nearly everything.

        Judged by the perplexity of its mean prediction against what would be right: for the main head the client's
        own labels, for the others those of the part. A client that owns one class says one class rightly.
        """
        right = perplexity(self.samples_C / self.samples_C.sum())
        found = []
        for head, mean_C in enumerate(self.mean_probability_HC):
            expected = min(right, perplexity(label_distribution)) if head == 0 else right
            if perplexity(mean_C) < min(COLLAPSED_PERPLEXITY, 0.8 * expected):
                found.append((head, int(mean_C.argmax())))
        return found


def perplexity(p: NDArray[np.float64]) -> float:
    """The number of classes over which a distribution effectively spreads: exp(entropy)."""
    positive = p[p > 0.0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


@torch.no_grad()
def score(model: ClientModel, part: Part) -> Scores:
    """Ask every head about every sample, in evaluation mode."""
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
    """All clients on one part: clients x heads."""

    part: str
    private_accuracy: list[list[float]]
    shared_accuracy: list[list[float]]
    private_samples: list[float]  # the number of samples that private accuracy is worth, by client
    collapsed: list[tuple[int, int, int]]  # client, head, class


def evaluation_of(clients: Sequence[Client], part: str, scores: Sequence[Scores]) -> Evaluation:
    """Judge every head of every client by what was counted on a part, wherever that was done."""
    pairs = list(zip(clients, scores, strict=True))
    return Evaluation(
        part,
        [s.private_accuracy(client.judged_by) for client, s in pairs],
        [s.shared_accuracy() for _, s in pairs],
        [s.private_samples(client.judged_by) for client, s in pairs],
        [(c.index, head, label) for c, s in pairs for head, label in s.collapsed_heads(c.label_distribution)],
    )


def accuracy_on(clients: Sequence[Client], scores: Sequence[Scores]) -> list[list[list[float]]]:
    """Return the accuracy of every client on the private distribution of every client: clients x heads x clients."""
    judged_by = [client.judged_by for client in clients]
    return [own.accuracy_on(judged_by) for own in scores]

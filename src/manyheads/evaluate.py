"""Private and shared accuracy of every head, collapsed heads, and which head to deploy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.client import Client
from manyheads.data.views import model_input
from manyheads.models.client_model import ClientModel

CHUNK = 512  # samples evaluated at a time
COLLAPSED_PERPLEXITY = 1.5  # a head whose mean prediction spreads over fewer classes than this has collapsed


@dataclass(frozen=True)
class Part:
    """Labelled samples to judge by: the test set, or the validation part."""

    name: str
    images: Tensor  # uint8, N x height x width x channels
    labels: Tensor


@dataclass(frozen=True)
class Scores:
    """What one model's heads did on a part, counted by class, so that any weighting can follow."""

    correct_HC: NDArray[np.int64]
    samples_C: NDArray[np.int64]
    mean_probability_HC: NDArray[np.float64]

    def shared_accuracy(self) -> list[float]:
        """By head: the plain share of correct answers."""
        return [float(x) for x in self.correct_HC.sum(1) / self.samples_C.sum()]

    def private_accuracy(self, label_distribution: NDArray[np.float64]) -> list[float]:
        """By head: accuracy by class, weighted by the client's own label distribution.

        Classes that the part does not hold cannot be judged; their weight goes to the others.
        """
        by_class_HC = self.correct_HC / np.maximum(self.samples_C, 1)
        return [float(x) for x in by_class_HC @ self._weights(label_distribution)]

    def private_samples(self, label_distribution: NDArray[np.float64]) -> float:
        """How many samples, drawn as the client draws, would judge as precisely as this weighting does."""
        weight_C = self._weights(label_distribution)
        return 1.0 / float((weight_C**2 / np.maximum(self.samples_C, 1)).sum()) if weight_C.any() else 0.0

    def _weights(self, label_distribution: NDArray[np.float64]) -> NDArray[np.float64]:
        """The label distribution over the classes that the part holds; all zero where it holds none of them."""
        weight_C = np.where(self.samples_C > 0, label_distribution, 0.0)
        return weight_C / weight_C.sum() if weight_C.any() else weight_C

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
    correct = torch.zeros(heads, classes, dtype=torch.int64, device=like.device)
    mean = torch.zeros(heads, classes, dtype=torch.float64, device=like.device)
    was_training = model.training
    model.eval()
    for images, labels in zip(torch.split(part.images, CHUNK), torch.split(part.labels, CHUNK), strict=True):
        logits_BHC, _ = model(model_input(images, like.dtype))
        hit_HB = (logits_BHC.argmax(-1) == labels[:, None]).T.long()
        correct.scatter_add_(1, labels.expand(heads, -1), hit_HB)
        mean += logits_BHC.softmax(-1).double().sum(0)
    model.train(was_training)
    samples = torch.bincount(part.labels, minlength=classes)
    return Scores(correct.cpu().numpy(), samples.cpu().numpy(), (mean / len(part.labels)).cpu().numpy())


@dataclass(frozen=True)
class Evaluation:
    """All clients on one part: clients x heads."""

    part: str
    private_accuracy: list[list[float]]
    shared_accuracy: list[list[float]]
    private_samples: list[float]  # the number of samples that private accuracy is worth, by client
    collapsed: list[tuple[int, int, int]]  # client, head, class


def evaluate(clients: Sequence[Client], part: Part) -> Evaluation:
    """Judge every head of every client on a part."""
    scores = [score(client.model, part) for client in clients]
    pairs = list(zip(clients, scores, strict=True))
    return Evaluation(
        part.name,
        [s.private_accuracy(client.label_distribution) for client, s in pairs],
        [s.shared_accuracy() for _, s in pairs],
        [s.private_samples(client.label_distribution) for client, s in pairs],
        [(c.index, head, label) for c, s in pairs for head, label in s.collapsed_heads(c.label_distribution)],
    )


def mean_by_head(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Mean over clients of a clients x heads table."""
    return [sum(column) / len(column) for column in zip(*accuracy, strict=True)]


def best_head(accuracy_by_head: Sequence[float]) -> int:
    """The head with the highest accuracy; the lower one of equals."""
    return max(range(len(accuracy_by_head)), key=lambda head: (accuracy_by_head[head], -head))


def head_for_private_task(accuracy_by_head: Sequence[float], samples: float) -> int:
    """The main head, which was trained for it, unless another is better by more than one standard error."""
    best = best_head(accuracy_by_head)
    share = (accuracy_by_head[best] * samples + 1.0) / (samples + 2.0)
    error = math.sqrt(share * (1.0 - share) / max(samples, 1.0))
    return best if accuracy_by_head[best] - accuracy_by_head[0] > error else 0

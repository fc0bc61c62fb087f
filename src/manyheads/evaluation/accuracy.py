"""Accuracy of every head of every client on a part, and heads that have collapsed."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.client.client import Client
from manyheads.client.own_statistics import for_own_task
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
    correct_with_prior_HD: NDArray[np.int64] | None = None  # where the client's log prior is added to the logits
    # By candidate for the private task (heads with the prior, if there is one, then plain heads): samples on which it
    # is right and the first candidate is not, or the other way round.
    differs_PD: NDArray[np.int64] | None = None

    def shared_accuracy(self) -> list[float]:
        """Return the share of correct answers, by head."""
        return [float(x) for x in self.correct_HD.sum(1) / self.samples_D.sum()]

    def private_accuracy(self, weight_D: NDArray[np.float64]) -> list[float]:
        """Return the accuracy on a client's mixture of kinds (D weights), by head.

        The weight of kinds without samples here goes to the others.
        """
        return self._weighted(self.correct_HD, weight_D)

    def private_with_prior(self, weight_D: NDArray[np.float64]) -> list[float] | None:
        """Return the same where the client's prior is added to the logits; None if its model is not balanced."""
        counted = self.correct_with_prior_HD
        return None if counted is None else self._weighted(counted, weight_D)

    def private_errors(self, weight_D: NDArray[np.float64]) -> list[float] | None:
        """Return by candidate the standard error of how far its private accuracy is from the first one's.

        Both answer the same samples, so only those count on which they differ; one more is assumed, because of few
        samples one seldom sees all that happens.
        """
        if self.differs_PD is None:
            return None
        shown = [own for own in (self.correct_with_prior_HD, self.correct_HD) if own is not None]
        correct_PD, samples_D = np.concatenate(shown), np.maximum(self.samples_D, 1)
        better_PD = (correct_PD - correct_PD[0]) / samples_D
        variance_PD = ((self.differs_PD + 1) / samples_D - better_PD**2).clip(min=0.0) / samples_D
        return [float(x) for x in np.sqrt(variance_PD @ self._weights(weight_D) ** 2)]

    def _weighted(self, correct_HD: NDArray[np.int64], weight_D: NDArray[np.float64]) -> list[float]:
        by_kind_HD = correct_HD / np.maximum(self.samples_D, 1)
        return [float(x) for x in by_kind_HD @ self._weights(weight_D)]

    def accuracy_on(self, kind_weights: Sequence[NDArray[np.float64]]) -> list[list[float]]:
        """Return `private_accuracy` on the mixture of each of several clients: heads x clients."""
        return np.array([self.private_accuracy(weight_D) for weight_D in kind_weights]).T.tolist()  # type: ignore[no-any-return]

    def private_samples(self, weight_D: NDArray[np.float64]) -> float:
        """Return how many samples, drawn by these weights, would be as precise as the weighted accuracy."""
        return effective_samples(weight_D, self.samples_D)

    def _weights(self, weight_D: NDArray[np.float64]) -> NDArray[np.float64]:
        return _weights_here(weight_D, self.samples_D)

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


def effective_samples(weight_D: NDArray[np.float64], samples_D: NDArray[np.int64]) -> float:
    """Return how many samples, drawn by these weights of kinds, would be as precise as the weighted accuracy.

    >>> effective_samples(np.array([0.5, 0.5]), np.array([20, 20]))
    40.0
    """
    weight_D = _weights_here(weight_D, samples_D)
    return 1.0 / float((weight_D**2 / np.maximum(samples_D, 1)).sum()) if weight_D.any() else 0.0


def _weights_here(weight_D: NDArray[np.float64], samples_D: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return weights of the kinds that have samples, with sum 1; all zero if none has."""
    weight_D = np.where(samples_D > 0, weight_D, 0.0)
    return weight_D / weight_D.sum() if weight_D.any() else weight_D


def perplexity(p: NDArray[np.float64]) -> float:
    """Return the number of classes over which a distribution effectively spreads: exp(entropy).

    >>> perplexity(np.array([0.25, 0.25, 0.25, 0.25])), perplexity(np.array([1.0, 0.0]))
    (4.0, 1.0)
    """
    positive = p[p > 0.0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


@torch.no_grad()
def score(
    model: ClientModel,
    part: EvaluationSet,
    log_prior_C: Tensor | None = None,
    own_task: Callable[[], AbstractContextManager[None]] | None = None,
) -> Scores:
    """Count the correct answers of every head, in evaluation mode, and those with a prior if there is one.

    With the prior, a model answers as it does inside `own_task()`.
    """
    heads, classes = model.shape_HC
    like = next(model.parameters())
    candidates = heads if log_prior_C is None else 2 * heads
    correct, differs = torch.zeros(2, candidates, part.number_of_kinds, dtype=torch.int64, device=like.device)
    mean = torch.zeros(heads, classes, dtype=torch.float64, device=like.device)
    with evaluating(model):
        chunks = zip(*(torch.split(of, CHUNK) for of in (part.samples, part.labels, part.kinds)), strict=True)
        for samples, labels, kinds in chunks:
            logits_BHC, _ = model(model_input(part.pixels[samples], like.dtype))
            with_prior = []
            if log_prior_C is not None:
                own_BHC = logits_BHC
                if own_task is not None:
                    with own_task():
                        own_BHC, _ = model(model_input(part.pixels[samples], like.dtype))
                with_prior = [own_BHC + log_prior_C]
            hit_PB = (torch.cat([*with_prior, logits_BHC], 1).argmax(-1) == labels[:, None]).T
            for counted, these_PB in ((correct, hit_PB), (differs, hit_PB != hit_PB[0])):
                counted.scatter_add_(1, kinds.expand(candidates, -1), these_PB.long())
            mean += logits_BHC.softmax(-1).double().sum(0)
    by_kind = torch.bincount(part.kinds, minlength=part.number_of_kinds)
    by_class = torch.bincount(part.labels, minlength=classes)
    measured = (correct[-heads:], by_kind, by_class, mean / len(part.labels), correct[:heads], differs)
    plain, by_kind_D, by_class_C, mean_HC, first, differs_PD = (tensor.cpu().numpy() for tensor in measured)
    return Scores(plain, by_kind_D, by_class_C, mean_HC, None if log_prior_C is None else first, differs_PD)


def score_client(client: Client, part: EvaluationSet) -> Scores:
    """Count the correct answers of a client; for its own task with its own statistics, if it has them."""
    own = None if client.own_statistics is None else partial(for_own_task, client)
    return score(client.model, part, client.log_prior_C, own)


@dataclass(frozen=True)
class Evaluation:
    """The accuracy of all clients on one part: clients x heads."""

    part: str
    private_accuracy: list[list[float]]
    shared_accuracy: list[list[float]]
    private_samples: list[float]  # by client: how many samples private accuracy rests on
    collapsed: list[tuple[int, int, int]]  # client, head, class
    private_with_prior: list[list[float]] | None = None  # where clients' priors are added; None: not balanced
    private_errors: list[list[float]] | None = None  # by candidate: of what it is better by than the first


def evaluation_of(clients: Sequence[Client], part: str, scores: Sequence[Scores]) -> Evaluation:
    """Return the evaluation that follows from the counts of every client."""
    pairs = list(zip(clients, scores, strict=True))
    with_prior = [s.private_with_prior(client.kind_weights) for client, s in pairs]
    errors = [s.private_errors(client.kind_weights) for client, s in pairs]
    return Evaluation(
        part,
        [s.private_accuracy(client.kind_weights) for client, s in pairs],
        [s.shared_accuracy() for _, s in pairs],
        [s.private_samples(client.kind_weights) for client, s in pairs],
        [(c.index, head, label) for c, s in pairs for head, label in s.collapsed_heads(c.label_distribution)],
        [own for own in with_prior if own is not None] or None,
        [own for own in errors if own is not None] or None,
    )


def accuracy_on(clients: Sequence[Client], scores: Sequence[Scores]) -> list[list[list[float]]]:
    """Return the accuracy of every client on the private distribution of every client: clients x heads x clients."""
    kind_weights = [client.kind_weights for client in clients]
    return [own.accuracy_on(kind_weights) for own in scores]

"""All that is measured: accuracy of every head, hop by hop; who taught whom; what the embedding would allow.

Beside it: collapsed heads, and which head to deploy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.algorithms.base import Algorithm
from manyheads.client import Client
from manyheads.data.batches import Pixels
from manyheads.data.views import model_input
from manyheads.models.client_model import CHUNK, ClientModel, embeddings, evaluating

PROBE_ITERATIONS, PROBE_DECAY = 200, 1e-4
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
    accuracy_on: list[list[list[float]]]  # clients x heads x clients: on the private distribution of each client


def evaluate(clients: Sequence[Client], part: Part) -> Evaluation:
    """Judge every head of every client on a part."""
    return evaluation_of(clients, part.name, [score(client.model, part) for client in clients])


def evaluation_of(clients: Sequence[Client], part: str, scores: Sequence[Scores]) -> Evaluation:
    """What follows from the scores of all clients, wherever they were counted."""
    pairs = list(zip(clients, scores, strict=True))
    return Evaluation(
        part,
        [s.private_accuracy(client.judged_by) for client, s in pairs],
        [s.shared_accuracy() for _, s in pairs],
        [s.private_samples(client.judged_by) for client, s in pairs],
        [(c.index, head, label) for c, s in pairs for head, label in s.collapsed_heads(c.label_distribution)],
        [s.accuracy_on([other.judged_by for other in clients]) for s in scores],
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


def hop_means(
    accuracy_on: Sequence[Sequence[Sequence[float]]], hops: Sequence[Sequence[int | None]]
) -> dict[str, list[float]]:
    """By hop distance from whose data it is to who is judged: accuracy by head, a mean over pairs of clients.

    "0" is the own distribution; "none" is that of clients whose knowledge cannot arrive.
    """
    found: dict[str, list[Sequence[float]]] = {}
    for i, by_head in enumerate(accuracy_on):
        for j in range(len(accuracy_on)):
            away = hops[i][j]
            found.setdefault("none" if away is None else str(away), []).append([on[j] for on in by_head])
    ordered = sorted(found, key=lambda away: (away == "none", len(away), away))
    return {away: mean_by_head(found[away]) for away in ordered}


@dataclass(frozen=True)
class Taught:
    """Who taught whom, counted on public batches, whose labels training does not use."""

    chosen: NDArray[np.int64]  # clients x auxiliary heads x teachers; on the diagonal the client's own heads
    # The others are None where the public set has no labels.
    right: NDArray[np.int64] | None  # of these, how often the teacher named the right class
    chosen_by_class: NDArray[np.int64] | None  # teachers x classes, all pupils and heads together
    right_by_class: NDArray[np.int64] | None

    def __add__(self, other: "Taught") -> "Taught":
        """What was counted in two places."""
        sums: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            own, theirs = getattr(self, name), getattr(other, name)
            sums[name] = None if own is None else own + theirs
        return Taught(**sums)


@torch.no_grad()
def who_taught_whom(clients: Sequence[Client], algorithm: Algorithm, start: int, stop: int) -> Taught | None:
    """The choices of steps start ... stop - 1, with each client as it is now; None where nobody is chosen."""
    (heads, classes), everybody = clients[0].model.shape_HC, clients[0].clients
    chosen, right = np.zeros((2, everybody, heads - 1, everybody), dtype=np.int64)
    by_class = np.zeros((2, everybody, classes), dtype=np.int64)
    labelled = clients[0].public is not None and clients[0].public.labelled
    for client in clients:
        batches = client.batches(start, stop, algorithm.plan(client, start, stop))
        for step in range(start, stop):
            batch = batches.at(step)
            with evaluating(client.model):
                lesson = algorithm.lesson(client, batch)
            if lesson is None:
                return None
            teacher_BK, said_BK = lesson.teacher_BK.cpu().numpy(), lesson.class_BK.cpu().numpy()
            head_BK = np.broadcast_to(np.arange(heads - 1), teacher_BK.shape)
            np.add.at(chosen[client.index], (head_BK, teacher_BK), 1)
            if not labelled:
                continue
            label_BK = batch.public_labels()[:, None].expand_as(lesson.class_BK).cpu().numpy()
            hit_BK = (said_BK == label_BK).astype(np.int64)
            np.add.at(right[client.index], (head_BK, teacher_BK), hit_BK)
            np.add.at(by_class[0], (teacher_BK, label_BK), 1)
            np.add.at(by_class[1], (teacher_BK, label_BK), hit_BK)
    return Taught(chosen, right, *by_class) if labelled else Taught(chosen, None, None, None)


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

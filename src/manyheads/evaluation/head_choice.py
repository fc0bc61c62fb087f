"""The choice of a head for each task: on validation data, never on test data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from manyheads.errors import ConfigurationError
from manyheads.evaluation.accuracy import Evaluation
from manyheads.evaluation.means import mean_by_head


class HeadByTask(Protocol):
    """A head for each task, and whether the client's prior is added for the private one."""

    @property
    def private(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def prior(self) -> bool: ...


def adds_prior(head: int | None, task: str, deploy: HeadByTask | None) -> bool:
    """Tell whether a balanced model's prior is added: for the private task, unless plain logits were found better."""
    return task == "private" and (head is not None or deploy is None or deploy.prior)


@dataclass(frozen=True)
class Recommendation:
    """The head to use for each task, and whether the client's prior is added for the private one."""

    private: int
    shared: int
    prior: bool = False


def check_task(task: str) -> None:
    if task not in ("private", "shared"):
        raise ConfigurationError(f'task = "{task}": unknown task; private or shared')


def choose_head(head: int | None, task: str, heads: int, deploy: HeadByTask | None) -> int:
    """Return the head that was asked for, or the one chosen on validation data for `task`.

    Without a validation part it is the main head for the private task and the last head for the shared one.
    """
    check_task(task)
    if head is None:
        chosen = deploy or Recommendation(private=0, shared=heads - 1)
        return chosen.private if task == "private" else chosen.shared
    if not 0 <= head < heads:
        raise ConfigurationError(f"head = {head}: this model has heads 0 to {heads - 1}")
    return head


def best_head(accuracy_by_head: Sequence[float]) -> int:
    """Return the head with the highest accuracy, the first of equals.

    >>> best_head([0.7, 0.8, 0.8])
    1
    """
    return max(range(len(accuracy_by_head)), key=lambda head: (accuracy_by_head[head], -head))


def best_candidate(accuracies: Sequence[float], errors: Sequence[float], usual: int = 0) -> int:
    """Return the usual candidate unless the best one is better by more than a standard error.

    Errors are those of the difference from the first candidate. Unless that is the usual one, the larger of the two
    stands for the error of their difference, which was not counted.

    >>> best_candidate([0.90, 0.92], errors=[0.0, 0.03]), best_candidate([0.90, 0.92], errors=[0.0, 0.01])
    (0, 1)
    """
    best = best_head(accuracies)
    return best if accuracies[best] - accuracies[usual] > max(errors[best], errors[usual]) else usual


def recommended_heads(validation: Evaluation | None, client: int | None = None) -> Recommendation | None:
    """Return the best head for each task, over all clients or for one; None without validation data.

    The private task may take any head, with the client's prior or without it. Over all clients, first comes what was
    trained for it: the main head, with the prior if it is balanced. A client, whose own validation samples are few,
    takes what is best over all clients unless another candidate is clearly better for itself.
    """
    if validation is None:
        return None
    everybody = slice(None)
    chosen = _private_candidate(validation, everybody, usual=0)
    judged = everybody if client is None else slice(client, client + 1)
    if client is not None:
        chosen = _private_candidate(validation, judged, usual=chosen)
    shared = mean_by_head(validation.shared_accuracy[judged])
    return Recommendation(
        private=chosen % len(shared),
        shared=best_head(shared),
        prior=validation.private_with_prior is not None and chosen < len(shared),
    )


def _private_candidate(validation: Evaluation, judged: slice, usual: int) -> int:
    """Return what some clients should use for their private task: the heads with the prior, if any, come first."""
    clients = len(validation.private_accuracy[judged])
    with_prior = [] if (given := validation.private_with_prior) is None else mean_by_head(given[judged])
    candidates = with_prior + mean_by_head(validation.private_accuracy[judged])
    errors = [[math.inf] * len(candidates)] if validation.private_errors is None else validation.private_errors[judged]
    of_mean = [math.sqrt(sum(error**2 for error in of_all)) / clients for of_all in zip(*errors, strict=True)]
    return best_candidate(candidates, of_mean, usual)

"""The choice of a head for each task: on validation data, never on test data."""

import math
from collections.abc import Sequence
from statistics import mean
from typing import Protocol

from manyheads.errors import ConfigurationError
from manyheads.evaluation.accuracy import Evaluation
from manyheads.evaluation.means import mean_by_head


class HeadByTask(Protocol):
    """A head for each task: a dict, or the part of a summary."""

    def __getitem__(self, task: str, /) -> int: ...


def choose_head(head: int | None, task: str, heads: int, deploy: HeadByTask | None) -> int:
    """Return the head that was asked for, or the one chosen on validation data for `task`.

    Without a validation part it is the main head for the private task and the last head for the shared one.
    """
    if task not in ("private", "shared"):
        raise ConfigurationError(f'task = "{task}": unknown task; private or shared')
    if head is None:
        usual: HeadByTask = {"private": 0, "shared": heads - 1}
        return int((deploy or usual)[task])
    if not 0 <= head < heads:
        raise ConfigurationError(f"head = {head}: this model has heads 0 to {heads - 1}")
    return head


def best_head(accuracy_by_head: Sequence[float]) -> int:
    """Return the head with the highest accuracy, the first of equals.

    >>> best_head([0.7, 0.8, 0.8])
    1
    """
    return max(range(len(accuracy_by_head)), key=lambda head: (accuracy_by_head[head], -head))


def head_for_private_task(accuracy_by_head: Sequence[float], samples: float) -> int:
    """Return the main head, which was trained for this task, unless another is better by more than one standard error.

    >>> head_for_private_task([0.90, 0.92], samples=50), head_for_private_task([0.90, 0.92], samples=5_000)
    (0, 1)
    """
    best = best_head(accuracy_by_head)
    share = (accuracy_by_head[best] * samples + 1.0) / (samples + 2.0)
    error = math.sqrt(share * (1.0 - share) / max(samples, 1.0))
    return best if accuracy_by_head[best] - accuracy_by_head[0] > error else 0


def recommended_heads(validation: Evaluation | None, client: int | None = None) -> dict[str, int] | None:
    """Return the best head for each task, over all clients or for one; None without validation data."""
    if validation is None:
        return None
    judged = slice(None) if client is None else slice(client, client + 1)  # all clients, or one
    private, shared = validation.private_accuracy[judged], validation.shared_accuracy[judged]
    samples = mean(validation.private_samples[judged])
    return {"private": head_for_private_task(mean_by_head(private), samples), "shared": best_head(mean_by_head(shared))}

"""Which head to use for which task: chosen on validation data, never on test data."""

import math
from collections.abc import Sequence
from statistics import mean
from typing import Protocol

from manyheads.errors import ConfigurationError
from manyheads.evaluation.accuracy import Evaluation
from manyheads.evaluation.means import mean_by_head


class Chosen(Protocol):
    """A head by task: a dict, or what a summary holds."""

    def __getitem__(self, task: str, /) -> int: ...


def choose_head(head: int | None, task: str, heads: int, deploy: Chosen | None) -> int:
    """The head that was asked for, or the one chosen on validation data for `task`.

    Without a validation part: the main head for the private task, the last head for the shared one.
    """
    if task not in ("private", "shared"):
        raise ConfigurationError(f'task = "{task}": unknown task; private or shared')
    if head is None:
        usual: Chosen = {"private": 0, "shared": heads - 1}
        return int((deploy or usual)[task])
    if not 0 <= head < heads:
        raise ConfigurationError(f"head = {head}: this model has heads 0 to {heads - 1}")
    return head


def best_head(accuracy_by_head: Sequence[float]) -> int:
    """The head with the highest accuracy; the lower one of equals."""
    return max(range(len(accuracy_by_head)), key=lambda head: (accuracy_by_head[head], -head))


def head_for_private_task(accuracy_by_head: Sequence[float], samples: float) -> int:
    """The main head, which was trained for it, unless another is better by more than one standard error."""
    best = best_head(accuracy_by_head)
    share = (accuracy_by_head[best] * samples + 1.0) / (samples + 2.0)
    error = math.sqrt(share * (1.0 - share) / max(samples, 1.0))
    return best if accuracy_by_head[best] - accuracy_by_head[0] > error else 0


def deploy(validation: Evaluation | None, client: int | None = None) -> dict[str, int] | None:
    """Which head to use for the private and for the shared task: chosen on validation data, never on test data."""
    if validation is None:
        return None
    judged = slice(None) if client is None else slice(client, client + 1)  # all clients, or one
    private, shared = validation.private_accuracy[judged], validation.shared_accuracy[judged]
    samples = mean(validation.private_samples[judged])
    return {"private": head_for_private_task(mean_by_head(private), samples), "shared": best_head(mean_by_head(shared))}

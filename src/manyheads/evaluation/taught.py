"""Who taught whom, and how often rightly."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.algorithms.base import Algorithm
from manyheads.client.client import Client
from manyheads.models.client_model import evaluating


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

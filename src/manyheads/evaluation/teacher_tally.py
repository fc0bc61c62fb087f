"""Counts of who taught whom, and how often the teacher was right."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.algorithms.base import Algorithm
from manyheads.client.client import Client
from manyheads.models.client_model import evaluating

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class TeacherTally:
    """Counts of who taught whom on public batches, whose labels training does not use.

    `right`, `by_class` and `missed` are None where the public set has no labels.
    """

    own: Counts  # by auxiliary head: samples on which a client's own head was the teacher, all clients together
    own_right: Counts | None  # how many of these were right; likewise below
    others: Counts  # auxiliary heads x teachers: samples that a client taught others
    others_right: Counts | None
    chosen_by_class: Counts | None  # teachers x classes, over all students and heads, own heads included
    right_by_class: Counts | None
    # By auxiliary head, all clients together: samples on which the teacher was wrong and another candidate was right.
    # Also None if the algorithm does not say who the candidates were.
    missed: Counts | None
    # Students x auxiliary heads x teachers; a student's own heads are on the diagonal. It grows with the square of the
    # number of clients, and is None if it was not asked for.
    chosen: Counts | None
    right: Counts | None

    def __add__(self, other: "TeacherTally") -> "TeacherTally":
        """Add up what two workers counted."""
        sums: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            own, theirs = getattr(self, name), getattr(other, name)
            sums[name] = None if own is None or theirs is None else own + theirs
        return TeacherTally(**sums)


@torch.no_grad()
def who_taught_whom(
    clients: Sequence[Client], algorithm: Algorithm, start: int, stop: int, *, pairs: bool
) -> TeacherTally | None:
    """Count the choices of steps start ... stop - 1, with each client as it is now; None if nobody is chosen.

    With `pairs`, count them for each student, too.
    """
    labelled = clients[0].public is not None and clients[0].public.labelled
    counted, candidates_known = _nothing_yet(clients[0], labelled, pairs), True
    for client in clients:
        batches = client.batches(start, stop, algorithm.plan(client, start, stop))
        for step in range(start, stop):
            batch = batches.at(step)
            with evaluating(client.model):
                choices = algorithm.teacher_choices(client, batch)
            if choices is None:
                return None
            teacher_BK = choices.teacher_BK.cpu().numpy()
            _count_choices(counted, client.index, teacher_BK)
            if labelled:
                label_BK = batch.public_labels()[:, None].expand_as(choices.class_BK).cpu().numpy()
                right_BK = choices.class_BK.cpu().numpy() == label_BK
                _count_right(counted, client.index, teacher_BK, right_BK, label_BK)
                if choices.candidate_class_JBK is None:
                    candidates_known = False
                else:
                    _count_missed(counted, choices.candidate_class_JBK.cpu().numpy() == label_BK, right_BK)
    return counted if candidates_known else replace(counted, missed=None)


def _nothing_yet(client: Client, labelled: bool, pairs: bool) -> TeacherTally:
    (heads, classes), clients = client.model.shape_HC, client.clients
    by_teacher, by_class, by_student = (heads - 1, clients), (clients, classes), (clients, heads - 1, clients)

    def zeros(shape: Any, counted: bool = True) -> Any:
        return np.zeros(shape, dtype=np.int64) if counted else None

    return TeacherTally(
        own=zeros(heads - 1),
        own_right=zeros(heads - 1, labelled),
        others=zeros(by_teacher),
        others_right=zeros(by_teacher, labelled),
        chosen_by_class=zeros(by_class, labelled),
        right_by_class=zeros(by_class, labelled),
        missed=zeros(heads - 1, labelled),
        chosen=zeros(by_student, pairs),
        right=zeros(by_student, pairs and labelled),
    )


def _count_choices(counted: TeacherTally, student: int, teacher_BK: Counts) -> None:
    head_BK, own_BK = _heads(teacher_BK), teacher_BK == student
    counted.own[:] += own_BK.sum(0)
    np.add.at(counted.others, (head_BK, teacher_BK), (~own_BK).astype(np.int64))
    if counted.chosen is not None:
        np.add.at(counted.chosen[student], (head_BK, teacher_BK), 1)


def _count_right(
    counted: TeacherTally, student: int, teacher_BK: Counts, right_BK: NDArray[np.bool_], label_BK: Counts
) -> None:
    head_BK, own_BK, hit_BK = _heads(teacher_BK), teacher_BK == student, right_BK.astype(np.int64)
    assert counted.own_right is not None
    counted.own_right[:] += (right_BK & own_BK).sum(0)
    for counts, place, number in (
        (counted.others_right, (head_BK, teacher_BK), (right_BK & ~own_BK).astype(np.int64)),
        (counted.chosen_by_class, (teacher_BK, label_BK), np.ones_like(hit_BK)),
        (counted.right_by_class, (teacher_BK, label_BK), hit_BK),
    ):
        assert counts is not None
        np.add.at(counts, place, number)
    if counted.right is not None:
        np.add.at(counted.right[student], (head_BK, teacher_BK), hit_BK)


def _count_missed(counted: TeacherTally, right_JBK: NDArray[np.bool_], chosen_right_BK: NDArray[np.bool_]) -> None:
    assert counted.missed is not None
    counted.missed[:] += (right_JBK.any(0) & ~chosen_right_BK).sum(0)


def _heads(teacher_BK: Counts) -> Counts:
    """Return the auxiliary head that each entry is about."""
    return np.broadcast_to(np.arange(teacher_BK.shape[1]), teacher_BK.shape)

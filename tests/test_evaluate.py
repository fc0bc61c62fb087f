"""Accuracies counted by hand, collapsed heads, and the choice of a head."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads.evaluate import Part, Scores, best_head, head_for_private_task, mean_by_head, perplexity, score


class Stub(nn.Module):
    """Head 0 reads the label off the first pixel; head 1 says class 2 to everything; head 2 shifts by one."""

    shape_HC = (3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        label = (images[:, 0, 0, 0] * 63.75 + 127.5).round().long() // 50
        logits = torch.zeros(len(images), 3, 4)
        logits[range(len(images)), 0, label] = 20.0
        logits[:, 1, 2] = 20.0
        logits[range(len(images)), 2, (label + 1) % 4] = 20.0
        return logits, label


def part(labels: list[int]) -> Part:
    tensor = torch.tensor(labels)
    return Part("test", (tensor * 50).to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 1), tensor)


def scores(labels: list[int]) -> Scores:
    return score(Stub(), part(labels))  # type: ignore[arg-type]


def test_accuracy_by_hand() -> None:
    found = scores([0, 1, 2, 2, 2, 3] * 200)  # more than one chunk
    assert found.shared_accuracy() == pytest.approx([1.0, 0.5, 0.0])
    # A client that owns classes 2 and 3 alike: head 1 is right on class 2 only.
    assert found.private_accuracy(np.array([0.0, 0.0, 0.5, 0.5])) == pytest.approx([1.0, 0.5, 0.0])
    assert found.private_accuracy(np.array([0.0, 0.0, 0.9, 0.1])) == pytest.approx([1.0, 0.9, 0.0])
    assert found.samples_C.sum() == 1_200


def test_classes_that_are_not_judged_leave_their_weight_to_others() -> None:
    found = scores([2, 3])
    assert found.private_accuracy(np.array([0.6, 0.0, 0.3, 0.1])) == pytest.approx([1.0, 0.75, 0.0])
    assert found.private_accuracy(np.array([1.0, 0.0, 0.0, 0.0])) == [0.0, 0.0, 0.0]


def test_a_collapsed_head_is_named() -> None:
    even = np.full(4, 0.25)
    assert scores([0, 1, 2, 3]).collapsed_heads(even) == [(1, 2)]
    assert scores([2, 2, 2]).collapsed_heads(even) == []  # judged on one class, nobody can tell
    assert scores([2] * 9 + [3]).collapsed_heads(even) == [(1, 2)]


def test_the_main_head_of_a_client_with_one_class_is_not_a_collapse() -> None:
    found = Scores(np.zeros((2, 3), dtype=np.int64), np.array([5, 5, 5]), np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert found.collapsed_heads(np.array([1.0, 0.0, 0.0])) == [(1, 1)]
    assert found.collapsed_heads(np.array([0.5, 0.5, 0.0])) == [(0, 0), (1, 1)]


def test_helpers() -> None:
    assert perplexity(np.array([0.5, 0.5, 0.0])) == pytest.approx(2.0)
    assert mean_by_head([[0.0, 1.0], [0.5, 0.0]]) == [0.25, 0.5]
    assert best_head([0.1, 0.7, 0.7]) == 1


def test_the_main_head_serves_the_private_task_unless_another_is_clearly_better() -> None:
    assert head_for_private_task([0.90, 0.92], samples=20) == 0
    assert head_for_private_task([0.90, 0.92], samples=2_000) == 1
    assert head_for_private_task([0.5, 0.4, 1.0], samples=10) == 2
    assert head_for_private_task([0.0, 0.0], samples=0) == 0


def test_private_accuracy_is_worth_as_many_samples_as_it_weighs() -> None:
    found = scores([0] * 10 + [1] * 10 + [2] * 10 + [3] * 10)
    assert found.private_samples(np.full(4, 0.25)) == pytest.approx(40.0)
    assert found.private_samples(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(10.0)


def test_the_model_is_left_in_the_mode_it_was_in() -> None:
    stub = Stub()
    for mode in (True, False):
        stub.train(mode)
        score(stub, part([0, 1]))  # type: ignore[arg-type]
        assert stub.training == mode

"""Eq. 2 to 5 compared with loops that follow the paper's sums term by term, in float64: values and gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from manyheads.algorithms.distillation import (
    candidates,
    embedding_loss,
    prediction_loss,
    ramp_factor,
    targets,
)
from manyheads.config.types import Select
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.outputs import Outputs

SAMPLES, HEADS, CLASSES, WIDTH = 5, 4, 6, 3
Vector = list[float]


def loop_confidence(p: Vector, measure: str) -> float:
    ordered = sorted(p, reverse=True)
    if measure in ("max_probability", "density"):  # density: where its owner has measured nothing
        return ordered[0]
    if measure == "margin":
        return ordered[0] - ordered[1]
    return sum(x * math.log(x) for x in p if x > 0.0)


def loop_softmax(logits: Vector) -> Vector:
    weights = [math.exp(x - max(logits)) for x in logits]
    return [w / sum(weights) for w in weights]


def loop_targets(
    own: Tensor, foreign: list[Tensor], measure: str, select: Select, same_level: bool, self_target: bool, draw: Tensor
) -> list[list[list[Vector]]]:
    """Return for each sample and auxiliary head the distributions that it learns, one at a time."""
    learnt: list[list[list[Vector]]] = []
    for b in range(len(own)):
        learnt.append([])
        for k in range(1, own.shape[1]):
            others = [loop_softmax(f[b, k - 1].tolist()) for f in foreign]
            if same_level:
                others += [loop_softmax(f[b, k].tolist()) for f in foreign]
            choices = [loop_softmax(own[b, k - 1].tolist()), *others]
            if self_target:
                choices.append(loop_softmax(own[b, k].tolist()))
            if select == "all":
                learnt[b].append(others)
            elif select == "random":
                learnt[b].append([choices[int(draw[b, k - 1].item() * len(choices))]])
            else:
                sure = [loop_confidence(p, measure) for p in choices]
                learnt[b].append([choices[sure.index(max(sure))]])
    return learnt


def loop_cross_entropy(own: Tensor, learnt: list[list[list[Vector]]]) -> float:
    """Return Eq. 3 to 5 as sums over samples, heads, targets and classes."""
    total = 0.0
    for b in range(len(own)):
        for k in range(1, own.shape[1]):
            student = loop_softmax(own[b, k].tolist())
            total -= sum(p[c] * math.log(student[c]) for p in learnt[b][k - 1] for c in range(own.shape[2]))
    return total / len(own)


def our_prediction_loss(
    own: Tensor, foreign: list[Tensor], measure: str, select: Select, same_level: bool, self_target: bool, draw: Tensor
) -> Tensor:
    outputs = Outputs(own.detach().softmax(-1), torch.zeros(len(own), WIDTH))
    others = [Outputs(f.softmax(-1), torch.zeros(len(own), WIDTH)) for f in foreign]
    p, confidence = candidates(outputs, others, CONFIDENCES[measure], same_level=same_level, self_target=self_target)
    return prediction_loss(own, targets(p, confidence, select, draw))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    teachers=st.integers(0, 3),
    measure=st.sampled_from(sorted(CONFIDENCES)),
    select=st.sampled_from(["most_confident", "random", "all"]),
    same_level=st.booleans(),
    self_target=st.booleans(),
)
def test_prediction_loss_equals_the_loops(
    seed: int, teachers: int, measure: str, select: Select, same_level: bool, self_target: bool
) -> None:
    if select == "all" and self_target:
        return  # refused by the algorithm
    rng = torch.Generator().manual_seed(seed)
    own, *foreign = 2.0 * torch.randn(teachers + 1, SAMPLES, HEADS, CLASSES, dtype=torch.float64, generator=rng)
    draw = torch.rand(SAMPLES, HEADS - 1, dtype=torch.float64, generator=rng)
    ours = our_prediction_loss(own, foreign, measure, select, same_level, self_target, draw)
    loops = loop_cross_entropy(own, loop_targets(own, foreign, measure, select, same_level, self_target, draw))
    assert ours.item() == pytest.approx(loops, rel=1e-12, abs=1e-12)


def numeric_gradient(function: Callable[[Tensor], float], at: Tensor) -> Tensor:
    gradient, flat = torch.zeros_like(at), at.reshape(-1)
    for index in range(len(flat)):
        for sign in (1.0, -1.0):
            moved = flat.clone()
            moved[index] += sign * 1e-6
            gradient.view(-1)[index] += sign * function(moved.reshape(at.shape)) / 2e-6
    return gradient


@pytest.mark.parametrize("select", ["most_confident", "random", "all"])
@pytest.mark.parametrize("same_level", [False, True])
def test_prediction_gradient_flows_into_the_student_only(select: Select, same_level: bool) -> None:
    """The gradient is that of the loops with fixed targets; targets and the main head get none."""
    rng = torch.Generator().manual_seed(7)
    own, *foreign = torch.randn(3, 2, HEADS, CLASSES, dtype=torch.float64, generator=rng)
    draw = torch.rand(2, HEADS - 1, dtype=torch.float64, generator=rng)
    student = own.clone().requires_grad_()
    teachers = [f.clone().requires_grad_() for f in foreign]
    outputs = Outputs(student.softmax(-1), torch.zeros(2, WIDTH))
    others = [Outputs(t.softmax(-1), torch.zeros(2, WIDTH)) for t in teachers]
    p, confidence = candidates(
        outputs, others, CONFIDENCES["max_probability"], same_level=same_level, self_target=False
    )
    fixed = targets(p, confidence, select, draw)
    prediction_loss(student, fixed).backward()  # type: ignore[no-untyped-call]
    assert student.grad is not None
    held = loop_targets(own, foreign, "max_probability", select, same_level, False, draw)
    expected = numeric_gradient(lambda at: loop_cross_entropy(at, held), own)
    torch.testing.assert_close(student.grad, expected, rtol=1e-6, atol=1e-8)
    assert student.grad[:, 0].abs().max() == 0.0
    assert student.grad[:, 1:].abs().max() > 1e-3
    assert all(teacher.grad is None for teacher in teachers)


def test_a_head_that_is_already_the_surest_is_left_alone() -> None:
    own = torch.zeros(1, 2, 3, dtype=torch.float64)
    own[0, 1, 2] = 5.0  # head 1 is sure of class 2, head 0 and the teacher of nothing
    teacher = torch.zeros(1, 2, 3, dtype=torch.float64)
    for self_target, moves in ((False, True), (True, False)):
        student = own.clone().requires_grad_()
        draw = torch.zeros(1, 1, dtype=torch.float64)
        our_prediction_loss(
            student, [teacher], "max_probability", "most_confident", False, self_target, draw
        ).backward()  # type: ignore[no-untyped-call]
        assert student.grad is not None
        assert (student.grad.abs().max().item() > 1e-6) == moves


def test_ties_go_to_the_own_head_first() -> None:
    p = torch.tensor([[0.7, 0.3], [0.3, 0.7], [0.7, 0.3]], dtype=torch.float64)[:, None, None, :]
    chosen = targets(p, p.amax(-1), "most_confident")
    assert chosen[0, 0].tolist() == [0.7, 0.3]


def test_a_confidence_that_the_owner_sent_counts() -> None:
    p = torch.tensor([[[0.6, 0.4], [0.6, 0.4]]], dtype=torch.float64)
    own = Outputs(p, torch.zeros(1, 1))
    other = Outputs(p.flip(-1), torch.zeros(1, 1), confidence_BH=torch.tensor([[9.0, 9.0]], dtype=torch.float64))
    p_JBKC, confidence = candidates(own, [other], CONFIDENCES["max_probability"], same_level=False, self_target=False)
    assert targets(p_JBKC, confidence, "most_confident")[0, 0].tolist() == [0.4, 0.6]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), teachers=st.integers(0, 3), scale=st.floats(0.01, 100.0))
def test_embedding_loss_equals_the_loops(seed: int, teachers: int, scale: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    own, *foreign = torch.randn(teachers + 1, SAMPLES, WIDTH, dtype=torch.float64, generator=rng)
    total = 0.0
    for other in foreign:
        for b in range(SAMPLES):
            a, c = own[b].tolist(), other[b].tolist()
            norm_a, norm_c = math.hypot(*a), math.hypot(*c)
            total += sum((x / norm_a - y / norm_c) ** 2 for x, y in zip(a, c, strict=True)) / SAMPLES
    # The scale of an embedding does not count.
    assert embedding_loss({WIDTH: scale * own}, foreign).item() == pytest.approx(total, rel=1e-10, abs=1e-12)


def test_embedding_gradient_flows_into_the_student_only() -> None:
    rng = torch.Generator().manual_seed(3)
    own, other = torch.randn(2, SAMPLES, WIDTH, dtype=torch.float64, generator=rng)
    student, teacher = own.clone().requires_grad_(), other.clone().requires_grad_()
    embedding_loss({WIDTH: student}, [teacher]).backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    assert student.grad is not None
    expected = numeric_gradient(lambda at: embedding_loss({WIDTH: at}, [other]).item(), own)
    torch.testing.assert_close(student.grad, expected, rtol=1e-6, atol=1e-8)


def test_random_selection_draws_every_candidate_evenly() -> None:
    p = torch.eye(3, dtype=torch.float64)[:, None, None, :].expand(3, 9_000, 1, 3)
    uniform = torch.rand(9_000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shares = targets(p, p.amax(-1), "random", uniform).mean((0, 1))
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.02)


def test_random_selection_needs_draws() -> None:
    p = torch.ones(1, 1, 1, 1)
    with pytest.raises(ValueError, match="uniform"):
        targets(p, p.amax(-1), "random")


def test_ramp() -> None:
    """The factor is zero while it holds, then a straight line up to one; hold = rise = 0 is the paper."""
    factors = [ramp_factor(step, 100, 0.1, 0.3) for step in (0, 9, 10, 25, 40, 99)]
    assert factors == pytest.approx([0.0, 0.0, 0.0, 0.5, 1.0, 1.0])
    assert {ramp_factor(step, 100, 0.0, 0.0) for step in range(100)} == {1.0}
    assert ramp_factor(30, 100, 0.3, 0.0) == 1.0

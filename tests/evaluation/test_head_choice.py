"""Which head, and whether with the client's prior: counted by hand."""

import math

import numpy as np
import pytest
import torch

from manyheads.evaluation.accuracy import Evaluation, Scores, score
from manyheads.evaluation.head_choice import Recommendation, recommended_heads
from tests.evaluation.test_evaluate import Stub, part

NONE = np.zeros((2, 4))


def evaluation(
    plain: list[list[float]], with_prior: list[list[float]] | None, errors: list[list[float]] | None
) -> Evaluation:
    shared = [[0.2, 0.6, 0.4]] * len(plain)
    return Evaluation("validation", plain, shared, [50.0] * len(plain), [], with_prior, errors)


@pytest.mark.parametrize(
    ("plain", "with_prior", "errors", "expected"),
    [  # candidates: heads with the prior, then plain heads
        ([0.5, 0.6, 0.7], [0.8, 0.7, 0.95], 0.02, Recommendation(2, 1, prior=True)),
        ([0.5, 0.95, 0.7], [0.8, 0.7, 0.6], 0.02, Recommendation(1, 1, prior=False)),
        ([0.9, 0.6, 0.7], [0.8, 0.7, 0.6], 0.02, Recommendation(0, 1, prior=False)),
        ([0.5, 0.84, 0.7], [0.8, 0.7, 0.6], 0.05, Recommendation(0, 1, prior=True)),
        ([0.5, 0.6, 0.7], [0.8, 0.7, 0.84], 0.05, Recommendation(0, 1, prior=True)),
        ([0.8, 0.8, 0.8], [0.8, 0.8, 0.8], 0.0, Recommendation(0, 1, prior=True)),
        ([0.5, 0.6, 0.7], None, 0.05, Recommendation(2, 1, prior=False)),
        ([0.5, 0.54, 0.5], None, 0.05, Recommendation(0, 1, prior=False)),
    ],
)
def test_the_main_head_with_the_prior_unless_another_is_clearly_better(
    plain: list[float], with_prior: list[float] | None, errors: float, expected: Recommendation
) -> None:
    candidates = len(plain) + len(with_prior or [])
    found = evaluation([plain], None if with_prior is None else [with_prior], [[0.0] + [errors] * (candidates - 1)])
    assert recommended_heads(found) == recommended_heads(found, 0) == expected


def test_what_has_no_errors_says_too_little() -> None:
    assert recommended_heads(evaluation([[0.1, 0.9, 0.9]], [[0.1, 0.9, 0.9]], None)) == Recommendation(0, 1, prior=True)
    assert recommended_heads(None) is None


def test_a_client_with_few_samples_takes_what_is_best_over_all_clients() -> None:
    """Differences of 0.05 with errors of 0.06: too little for one client, enough for the mean of four."""
    plain, errors = [[0.50, 0.55, 0.0]] * 4, [[0.0, 0.06, 0.06]] * 4
    assert math.sqrt(4 * 0.06**2) / 4 < 0.05 < 0.06
    assert recommended_heads(evaluation(plain[:1], None, errors[:1]), 0) == Recommendation(0, 1)
    assert recommended_heads(evaluation(plain, None, errors)) == Recommendation(1, 1)
    assert recommended_heads(evaluation(plain, None, errors), 2) == Recommendation(1, 1)


def test_a_client_for_which_another_head_is_clearly_better_takes_that_one() -> None:
    plain, errors = [[0.5, 0.6, 0.0]] * 12, [[0.0, 0.05, 0.05]] * 12
    for own, expected in (([0.9, 0.5, 0.0], 0), ([0.5, 0.6, 0.9], 2), ([0.6, 0.56, 0.0], 1)):
        found = evaluation([own, *plain], None, [[0.0, 0.05, 0.05], *errors])
        assert recommended_heads(found, 0) == Recommendation(expected, 1)
        assert recommended_heads(found) == Recommendation(1, 1)
    mixed = evaluation([[0.5, 0.9, 0.0], [0.9, 0.5, 0.0]], None, [[0.0, 0.01, 0.01]] * 2)
    assert [recommended_heads(mixed, client) for client in (0, 1)] == [Recommendation(1, 1), Recommendation(0, 1)]


def counted(
    plain: list[list[int]], differs: list[list[int]], samples: list[int], prior: list[list[int]] | None
) -> Scores:
    each = np.array(samples)
    with_prior = None if prior is None else np.array(prior)
    return Scores(np.array(plain), each, each, NONE, with_prior, np.array(differs))


def test_private_errors_by_hand() -> None:
    """Of 10 samples head 1 answers 4 otherwise, 3 of them better: 2 more are right, and one more is assumed."""
    found = counted([[6], [8]], [[0], [4]], [10], None).private_errors(np.array([1.0]))
    assert found == pytest.approx([math.sqrt(0.1 / 10), math.sqrt((0.5 - 0.2**2) / 10)])


def test_private_errors_weigh_kinds_and_start_with_the_prior() -> None:
    scores = counted([[5, 1], [9, 3]], [[0, 0], [2, 1], [3, 1], [1, 3]], [10, 4], [[8, 2], [6, 3]])
    expected = []
    for correct, differs in (([8, 2], [0, 0]), ([6, 3], [2, 1]), ([5, 1], [3, 1]), ([9, 3], [1, 3])):
        variance = 0.0
        for weight, right, first, other, n in zip([0.25, 0.75], correct, [8, 2], differs, [10, 4], strict=True):
            variance += weight**2 * ((other + 1) / n - ((right - first) / n) ** 2) / n
        expected.append(math.sqrt(variance))
    assert scores.private_errors(np.array([0.25, 0.75])) == pytest.approx(expected)
    assert scores.private_errors(np.array([0.5, 1.5])) == pytest.approx(expected)


def test_without_counts_there_are_no_errors() -> None:
    each = np.array([5])
    assert Scores(np.array([[3]]), each, each, NONE).private_errors(np.array([1.0])) is None


def test_answers_with_a_prior_are_counted() -> None:
    """Logits are 20 at the answer: a prior of -30 takes class 0 away, and ties go to the first of the others."""
    labels = [0, 0, 1, 2, 3, 3, 3] * 100  # more than one chunk
    found = score(Stub(), part(labels), torch.tensor([-30.0, 0.0, 0.0, 0.0]))  # type: ignore[arg-type]
    assert found.correct_with_prior_HD is not None
    assert found.differs_PD is not None
    assert found.correct_HD.tolist() == [[200, 100, 100, 300], [0, 0, 100, 0], [0, 0, 0, 0]]
    assert found.correct_with_prior_HD.tolist() == [[0, 100, 100, 300], [0, 0, 100, 0], [0, 0, 0, 0]]
    assert found.differs_PD.tolist() == [
        [0, 0, 0, 0],
        [0, 100, 0, 300],
        [0, 100, 100, 300],
        [200, 0, 0, 0],
        [0, 100, 0, 300],
        [0, 100, 100, 300],
    ]
    weights = np.array([0.5, 0.5, 0.0, 0.0])
    assert found.private_with_prior(weights) == pytest.approx([0.5, 0.0, 0.0])
    assert found.private_accuracy(weights) == pytest.approx([1.0, 0.0, 0.0])
    plain = score(Stub(), part(labels))  # type: ignore[arg-type]
    assert plain.correct_HD.tolist() == found.correct_HD.tolist()
    assert plain.private_with_prior(weights) is None

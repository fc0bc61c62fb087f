"""Accuracies counted by hand, collapsed heads, and the choice of a head."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads import Experiment, train
from manyheads.data.batches import Pixels
from manyheads.engine.plain import exchange
from manyheads.evaluation.accuracy import EvaluationSet, Scores, perplexity, score
from manyheads.evaluation.head_choice import best_candidate, best_head
from manyheads.evaluation.means import hop_means, mean_by_head
from manyheads.evaluation.probe import probe
from manyheads.evaluation.teacher_tally import who_taught_whom
from manyheads.runs.read import read_events
from manyheads.setup.build import assemble


class Stub(nn.Module):
    """A model of three heads: 0 reads the label off the first pixel, 1 always predicts class 2, 2 shifts by one."""

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


def part(labels: list[int]) -> EvaluationSet:
    """Return an evaluation set whose kinds are its classes."""
    tensor = torch.tensor(labels)
    images = np.repeat(50 * np.array(labels, dtype=np.uint8), 4).reshape(-1, 2, 2, 1)
    return EvaluationSet("test", Pixels(images, torch.device("cpu")), torch.arange(len(labels)), tensor, tensor, 4)


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
    each, mean = np.array([5, 5, 5]), np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = Scores(np.zeros((2, 3), dtype=np.int64), each, each, mean)
    assert found.collapsed_heads(np.array([1.0, 0.0, 0.0])) == [(1, 1)]
    assert found.collapsed_heads(np.array([0.5, 0.5, 0.0])) == [(0, 0), (1, 1)]


def test_helpers() -> None:
    assert perplexity(np.array([0.5, 0.5, 0.0])) == pytest.approx(2.0)
    assert mean_by_head([[0.0, 1.0], [0.5, 0.0]]) == [0.25, 0.5]
    assert best_head([0.1, 0.7, 0.7]) == 1


def test_the_main_head_serves_the_private_task_unless_another_is_clearly_better() -> None:
    assert best_candidate([0.90, 0.92], errors=[0.0, 0.03]) == 0
    assert best_candidate([0.90, 0.92], errors=[0.0, 0.01]) == 1
    assert best_candidate([0.5, 0.4, 1.0], errors=[0.0, 0.1, 0.2]) == 2
    assert best_candidate([0.0, 0.0], errors=[0.0, 0.0]) == 0


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


def test_accuracy_on_everybody_s_data_by_hand() -> None:
    found = scores([0, 1, 2, 3])
    on = found.accuracy_on([np.array([1.0, 0, 0, 0]), np.array([0, 0, 0.5, 0.5])])
    assert on == [[1.0, 1.0], [0.0, 0.5], [0.0, 0.0]]


def test_means_by_hop_are_over_pairs_of_clients() -> None:
    accuracy_on = [[[0.9, 0.1, 0.3]], [[0.5, 0.8, 0.2]], [[0.0, 0.6, 0.7]]]  # three clients, one head
    hops: list[list[int | None]] = [[0, 1, 2], [None, 0, 1], [None, 1, 0]]
    found = hop_means(accuracy_on, hops)
    assert list(found) == ["0", "1", "2", "none"]
    assert found["0"] == pytest.approx([0.8])
    assert found["1"] == pytest.approx([(0.1 + 0.2 + 0.6) / 3])
    assert found["2"] == pytest.approx([0.3])
    assert found["none"] == pytest.approx([0.25])


@pytest.mark.parametrize("pairs", [True, False])
def test_who_taught_whom_by_hand(tiny: Experiment, pairs: bool) -> None:
    """Every choice is counted again with loops over samples, from the outputs of the drawn snapshots."""
    e = assemble(tiny.with_values(clients=4, algorithm={"targets_per_step": 2, "same_level": True}))
    exchange(e, step=0)
    taught = who_taught_whom(e.clients, e.resolved.algorithm, 0, 2, pairs=pairs)
    assert taught is not None
    chosen, right = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    for client in e.clients:
        client.model.eval()
        batches = client.batches(0, 2, e.resolved.algorithm.plan(client, 0, 2))
        for step in range(2):
            batch = batches.at(step)
            said = [(client.index, client.model(batch.public.images)[0].detach().softmax(-1))]
            said += [(entry.client, entry.outputs(batch.public).probabilities_BHC) for entry in batch.teachers]
            for b, label in enumerate(batch.public_labels().tolist()):
                for k in (1, 2):
                    candidates = [(who, p[b, k - 1]) for who, p in said] + [(who, p[b, k]) for who, p in said[1:]]
                    who, p = max(candidates, key=lambda one: float(one[1].max()))
                    chosen[client.index, k - 1, who] += 1
                    right[client.index, k - 1, who] += int(p.argmax()) == label
    found = (taught.own, taught.others, taught.chosen), (taught.own_right, taught.others_right, taught.right)
    for (own, others, by_student), counted in zip(found, (chosen, right), strict=True):
        of_own = np.stack([counted[client, :, client] for client in range(4)], axis=1)
        np.testing.assert_array_equal(own, of_own.sum(1))
        np.testing.assert_array_equal(others, counted.sum(0) - of_own)
        if pairs:
            np.testing.assert_array_equal(by_student, counted)
        else:
            assert by_student is None
    assert taught.chosen_by_class is not None
    assert taught.chosen_by_class.sum(1).tolist() == chosen.sum((0, 1)).tolist()
    assert taught.right_by_class is not None
    assert taught.right_by_class.sum(1).tolist() == right.sum((0, 1)).tolist()


def test_counting_who_taught_whom_changes_nothing(tiny: Experiment) -> None:
    e = assemble(tiny)
    exchange(e, step=0)
    before = [client.state.values.clone() for client in e.clients]
    assert who_taught_whom(e.clients, e.resolved.algorithm, 0, 3, pairs=True) is not None
    assert all(torch.equal(values, client.state.values) for values, client in zip(before, e.clients, strict=True))
    assert all(client.model.training for client in e.clients)


def test_nobody_is_chosen_if_all_teach(tiny: Experiment) -> None:
    e = assemble(tiny.with_values(algorithm={"select": "all"}))
    exchange(e, step=0)
    assert who_taught_whom(e.clients, e.resolved.algorithm, 0, 1, pairs=True) is None


def test_the_probe_finds_what_the_embedding_holds() -> None:
    """An embedding in which classes are separable gives 100 %, one that has lost two of four classes half of it."""

    class Embeds(nn.Module):
        shape_HC = (1, 4)

        def __init__(self, told_apart: int) -> None:
            super().__init__()
            self.nothing, self.told_apart = nn.Parameter(torch.zeros(1)), told_apart

        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            label = (images[:, 0, 0, 0] * 63.75 + 127.5).round().long() // 50
            return torch.zeros(len(images), 1, 4), nn.functional.one_hot(label % self.told_apart, 4).float()

    training, test, before = part([0, 1, 2, 3] * 30), part([3, 2, 1, 0] * 5), torch.get_rng_state()
    assert probe(Embeds(4), training, test) == 1.0  # type: ignore[arg-type]
    assert probe(Embeds(2), training, test) == 0.5  # type: ignore[arg-type]
    assert torch.equal(before, torch.get_rng_state()), "nothing draws from a global generator"


def test_the_probe_is_an_event_and_a_part_of_the_summary(tiny: Experiment, tmp_path: Path) -> None:
    summary = train(tiny.with_values(evaluate={"probe": True}), tmp_path / "run").summary
    events = [event for event in read_events(tmp_path / "run") if event["event"] == "probe"]
    assert [event["shared_accuracy"] for event in events] == [summary["probe"]]
    assert len(summary["probe"]) == 3
    assert min(summary["probe"]) > max(client["shared_accuracy"][0] for client in summary["clients"])

"""Mixtures of all candidates, and what a client remembers of them, against loops and dictionaries."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from manyheads import Experiment
from manyheads.algorithms import make_algorithm, recall
from manyheads.algorithms.distillation import LEAST_WEIGHT, candidates, mixture, prefer_right, targets
from manyheads.algorithms.mhd import MHD
from manyheads.client.client import Client
from manyheads.data.batches import Samples
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.outputs import Outputs
from manyheads.setup.build import Ensemble, assemble
from manyheads.setup.resolve import resolve

SAMPLES, HEADS, CLASSES = 5, 3, 6


def outputs(rng: torch.Generator, *, sender: bool) -> Outputs:
    """Return the outputs of somebody; a sender does not know every sample."""
    p_BHC = (3.0 * torch.randn(SAMPLES, HEADS, CLASSES, dtype=torch.float64, generator=rng)).softmax(-1)
    known_B = torch.rand(SAMPLES, generator=rng) < 0.6 if sender else None
    return Outputs(p_BHC, None, known_B=known_B)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    teachers=st.integers(0, 3),
    measure=st.sampled_from(["max_probability", "margin", "entropy"]),
    sharpness=st.sampled_from([0.0, 0.5, 1.0, 8.0]),
)
def test_a_mixture_equals_the_loops(seed: int, teachers: int, measure: str, sharpness: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    own, others = outputs(rng, sender=False), [outputs(rng, sender=True) for _ in range(teachers)]
    confidence = CONFIDENCES[measure]
    found = mixture(
        *candidates(own, others, confidence, same_level=False, self_target=False), confidence, sharpness=sharpness
    )
    for b in range(SAMPLES):
        for k in range(1, HEADS):
            expected = np.zeros(CLASSES)
            for teacher in (own, *others):
                if teacher.known_B is not None and not teacher.known_B[b]:
                    continue
                p = teacher.probabilities_BHC[b, k - 1].numpy()
                largest = np.sort(p)[::-1]
                weight = {
                    "max_probability": largest[0],
                    "margin": largest[0] - largest[1],
                    "entropy": np.exp((p * np.log(p)).sum()),  # one over the perplexity
                }[measure]
                expected += max(weight**sharpness, LEAST_WEIGHT) * p
            np.testing.assert_allclose(found[b, k - 1].numpy(), expected, rtol=1e-10, atol=1e-30)


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 8.0])
def test_who_does_not_know_a_sample_counts_nothing(sharpness: float) -> None:
    own = Outputs(torch.tensor([[[0.7, 0.3], [0.5, 0.5]]] * 2), None)
    sure = Outputs(torch.tensor([[[0.0, 1.0], [0.5, 0.5]]] * 2), None, known_B=torch.tensor([True, False]))
    surest = CONFIDENCES["max_probability"]
    heard = mixture(*candidates(own, [sure], surest, same_level=False, self_target=False), surest, sharpness=sharpness)
    torch.testing.assert_close(heard[1, 0] / heard[1, 0].sum(), torch.tensor([0.7, 0.3]))
    assert heard[0, 0, 1] > heard[0, 0, 0]
    nobody = mixture(torch.full((1, 1, 1, 2), 0.5), torch.full((1, 1, 1), -torch.inf), surest, sharpness=sharpness)
    assert nobody.tolist() == [[[0.0, 0.0]]]


def test_who_is_not_sure_at_all_still_makes_a_target() -> None:
    """Confidences may be zero, or so small that their power is: a target sums to one all the same."""
    p_JBKC = torch.tensor([[0.25] * 4, [0.4, 0.2, 0.2, 0.2]])[:, None, None]
    heard = mixture(p_JBKC, torch.zeros(2, 1, 1), CONFIDENCES["margin"], sharpness=8.0)
    torch.testing.assert_close(heard / heard.sum(-1, keepdim=True), p_JBKC.mean(0))


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), measure=st.sampled_from(sorted(CONFIDENCES)))
def test_an_oracle_is_right_wherever_a_candidate_is(seed: int, measure: str) -> None:
    rng = torch.Generator().manual_seed(seed)
    own, others = outputs(rng, sender=False), [outputs(rng, sender=True) for _ in range(2)]
    labels = torch.randint(CLASSES, (SAMPLES,), generator=rng)
    p_JBKC, sure_JBK = candidates(own, others, CONFIDENCES[measure], same_level=True, self_target=False)
    chosen = targets(p_JBKC, prefer_right(p_JBKC, sure_JBK, labels), "oracle")
    for b in range(SAMPLES):
        for k in range(HEADS - 1):
            known = [j for j in range(len(p_JBKC)) if sure_JBK[j, b, k] > -torch.inf]
            right = [j for j in known if p_JBKC[j, b, k].argmax() == labels[b]]
            best = max(right or known, key=lambda j: float(sure_JBK[j, b, k]))
            assert torch.equal(chosen[b, k], p_JBKC[best, b, k])


def public_of(tiny: Experiment) -> Samples:
    public = assemble(tiny).clients[0].public
    assert public is not None
    return public


def test_what_a_device_writes_last_does_not_matter(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a sample is twice in a batch, a GPU writes in any order; here once forwards and once backwards."""
    public, usual, kept = public_of(tiny), Tensor.index_copy_, []

    def backwards(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
        return usual(self, dim, index.flip(0), source.flip(0))

    now = torch.tensor([[[0.9, 0.1]], [[0.4, 0.6]], [[0.2, 0.8]]])
    samples = torch.from_numpy(public.indices)[[4, 7, 4]]
    for write in (usual, backwards):
        monkeypatch.setattr(Tensor, "index_copy_", write)
        memory: dict[str, Tensor] = {}
        recall.begin(memory, public, 1, 2, now)
        recall.add_heard(memory, public, samples, now, 0.5)
        kept.append(memory)
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


@pytest.mark.parametrize("classes", [3, recall.MOST_CLASSES, 40])
@pytest.mark.parametrize("remember", [0.5, 0.9])
def test_what_was_heard_is_a_dictionary_of_sums(classes: int, remember: float, tiny: Experiment) -> None:
    public, heads = public_of(tiny), 2
    rng = torch.Generator().manual_seed(classes)
    memory: dict[str, Tensor] = {}
    recall.begin(memory, public, heads, classes, torch.zeros(1, dtype=torch.float64))
    kept: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    few = torch.from_numpy(np.sort(public.indices)[[0, 5, 17, -1]])
    for step in range(8):
        samples = few[torch.randint(len(few), (6,), generator=rng)]  # six of four: some are there twice
        now = torch.randn(6, heads, classes, dtype=torch.float64, generator=rng).mul(3.0).softmax(-1)
        assert len(set(samples.tolist())) < len(samples), step
        before = {place: dict(of_place) for place, of_place in kept.items()}
        found = recall.add_heard(memory, public, samples, now, remember)
        for b, sample in enumerate(samples.tolist()):
            for k in range(heads):
                sums = {c: float(now[b, k, c]) for c in range(classes)}
                for c, value in before.get((sample, k), {}).items():
                    sums[c] += remember * value
                np.testing.assert_allclose(found[b, k].numpy(), [sums[c] for c in range(classes)], rtol=1e-12)
                largest = sorted(sums, key=lambda c: -sums[c])[: recall.MOST_CLASSES]
                kept[sample, k] = {c: sums[c] for c in largest}  # of a sample that is there twice the last
    for (sample, k), expected in kept.items():
        place = sorted(public.indices.tolist()).index(sample)
        values, names = memory[recall.VALUES][place, k].tolist(), memory[recall.CLASSES][place, k].tolist()
        assert dict(zip(names, values, strict=True)) == pytest.approx(expected)
    assert int(memory[recall.VALUES].sum((1, 2)).count_nonzero()) == len(few)
    assert recall.fits(memory, len(public), heads, classes, memory[recall.VALUES])


def trained(tiny: Experiment, steps: int, **knobs: object) -> tuple[Ensemble, MHD]:
    ensemble = assemble(tiny.with_values(algorithm={"select": "mixture", **knobs}, data={"public_fraction": 0.04}))
    algorithm = ensemble.resolved.algorithm
    assert isinstance(algorithm, MHD)
    exchange(ensemble, step=0)
    PlainTrainer().train(ensemble.clients, algorithm, Window(0, steps), lambda _: None)
    return ensemble, algorithm


@pytest.mark.parametrize(
    "knobs", [{"remember": 0.0}, {"remember": 0.9, "select": "most_confident"}, {"remember": 0.9, "select": "oracle"}]
)
def test_who_does_not_remember_keeps_nothing(knobs: dict[str, object], tiny: Experiment) -> None:
    ensemble, _ = trained(tiny, 2, **knobs)
    assert all(client.memory == {} for client in ensemble.clients)


def test_what_is_learnt_is_all_that_was_heard(tiny: Experiment) -> None:
    """The prediction term of three steps that show samples again, from mixtures by hand, in float64."""
    knobs = {"nu_aux": 2.0, "remember": 0.8, "sharpness": 4.0, "select": "mixture", "ramp": {"hold": 0.0, "rise": 0.0}}
    wanted = tiny.with_values(algorithm=knobs, data={"public_fraction": 0.04}, training={"public_batch_size": 48})
    ensemble = assemble(wanted, dtype=torch.float64)
    exchange(ensemble, step=0)
    client, algorithm = ensemble.clients[0], ensemble.resolved.algorithm
    heard: dict[int, Tensor] = {}
    batches = client.batches(0, 3, algorithm.plan(client, 0, 3))
    again = 0
    for step in range(3):
        batch = batches.at(step)
        term = algorithm.losses(client, batch, step)["prediction"].item()
        logits = client.model(batch.public.images)[0].detach()
        loss, before = 0.0, dict(heard)
        for b, sample in enumerate(batch.public.samples.tolist()):
            of_all = [logits.softmax(-1)[b, :-1]] + [
                t.outputs(batch.public).probabilities_BHC[b, :-1] for t in batch.teachers
            ]
            now = sum(p * p.amax(-1, keepdim=True) ** 4.0 for p in of_all)
            assert isinstance(now, Tensor)
            again += sample in before
            total = now + 0.8 * before[sample] if sample in before else now
            heard[sample] = total
            loss -= float((total / total.sum(-1, keepdim=True) * logits[b, 1:].log_softmax(-1)).sum())
        assert term == pytest.approx(2.0 * loss / len(logits), rel=1e-9)
    assert again > 20


def test_nobody_is_told_what_a_client_has_heard(tiny: Experiment) -> None:
    ensemble, _ = trained(tiny, 2, remember=0.9, confidence="density")
    client = ensemble.clients[0]
    assert recall.VALUES in client.memory
    assert not [name for name in client.snapshot(2).tensors() if "heard" in name]


def damaged(client: Client, what: str) -> dict[str, Tensor]:
    memory = {name: tensor.clone() for name, tensor in client.memory.items()}
    values, classes = memory[recall.VALUES], memory[recall.CLASSES]
    changes: dict[str, Callable[[], object]] = {
        "no values": lambda: memory.pop(recall.VALUES),
        "no classes": lambda: memory.pop(recall.CLASSES),
        "nan": lambda: values[0, 0].fill_(torch.nan),
        "infinite": lambda: values[0, 0].fill_(torch.inf),
        "negative": lambda: values[-1, -1].fill_(-1.0),
        "a class too many": lambda: classes[0, 0].fill_(10),
        "a class before the first": lambda: classes[0, 0].fill_(-1),
        "other samples": lambda: memory.update({recall.VALUES: values[1:], recall.CLASSES: classes[1:]}),
        "other heads": lambda: memory.update({recall.VALUES: values[:, 1:], recall.CLASSES: classes[:, 1:]}),
        "fewer classes": lambda: memory.update({recall.VALUES: values[..., 1:], recall.CLASSES: classes[..., 1:]}),
        "whole numbers": lambda: memory.update({recall.VALUES: values.long()}),
        "wide classes": lambda: memory.update({recall.CLASSES: classes.long()}),
        "half precision": lambda: memory.update({recall.VALUES: values.half()}),
        "double precision": lambda: memory.update({recall.VALUES: values.double()}),
    }
    changes[what]()
    return memory


DAMAGES = (
    *("no values", "no classes", "nan", "infinite", "negative", "a class too many", "a class before the first"),
    *("other samples", "other heads", "fewer classes", "whole numbers", "wide classes"),
    *("half precision", "double precision"),
)


@pytest.mark.parametrize("what", DAMAGES)
def test_memory_that_does_not_fit_is_noticed(what: str, tiny: Experiment) -> None:
    ensemble, algorithm = trained(tiny, 2, remember=0.9)
    client = ensemble.clients[0]
    assert algorithm.memory_fits(client, 2)
    client.memory = damaged(client, what)
    assert not algorithm.memory_fits(client, 2)


def test_a_save_before_the_first_step_needs_no_memory(tiny: Experiment) -> None:
    ensemble, algorithm = trained(tiny, 2, remember=0.9)
    client = ensemble.clients[0]
    client.memory = {}
    assert algorithm.memory_fits(client, 0)
    assert not algorithm.memory_fits(client, 2)


@pytest.mark.parametrize(
    ("data", "public"),
    [
        ({"public_fraction": 0.3}, 431),
        ({"public": "all", "private_fraction": 0.5}, 1293),
        ({"public_fraction": 0.2}, 287),
    ],
)
def test_what_was_heard_halves_in_a_tenth_of_the_run(tiny: Experiment, data: dict[str, Any], public: int) -> None:
    """Whatever the length of the run: after a tenth of all visits of a sample, half of it counts."""
    made = resolve(tiny.with_values(data=data, training={"steps": 800, "public_batch_size": 32}))
    passes = 800 * 32 / public
    assert len(made.split.public) == public
    remember = made.experiment.algorithm.options()["remember"]
    assert remember ** (passes / 10) == pytest.approx(0.5, abs=0.03)
    assert made.algorithm == make_algorithm(made.experiment.algorithm), "it is written out"


def test_a_short_run_remembers_nothing(tiny: Experiment) -> None:
    made = resolve(tiny.with_values(training={"steps": 20, "public_batch_size": 8}, data={"public_fraction": 0.3}))
    assert made.experiment.algorithm.options()["remember"] == 0.0
    client = assemble(tiny).clients[0]
    made.algorithm.plan(client, 0, 1)
    assert not client.memory, "and makes no room for it"

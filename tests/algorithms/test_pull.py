"""Pull: how hard auxiliary heads pull at the backbone, by autograd in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads import ConfigurationError, Experiment
from manyheads.algorithms.mhd import MHD
from manyheads.engine.plain import exchange
from manyheads.setup.build import assemble
from manyheads.setup.resolve import resolve

NONE = {"hold": 0.0, "rise": 0.0}
PRIVATE = ("cross_entropy", "own_labels")
KNOBS = {
    "nu_emb": 0.7,
    "nu_aux": 3.0,
    "own_labels": 0.0,
    "select": "most_confident",
    "ramp": NONE,
    "pull_ramp": NONE,
}


def gradients(tiny: Experiment, pull: object, heads_see: str, **knobs: object) -> dict[str, dict[str, Tensor]]:
    """Return the gradient of each term with respect to each parameter of client 0."""
    wanted = tiny.with_values(algorithm={**KNOBS, "pull": pull, **knobs}, model={"heads_see": heads_see})
    ensemble = assemble(wanted, dtype=torch.float64)
    exchange(ensemble, step=0)
    client, algorithm = ensemble.clients[0], ensemble.resolved.algorithm
    terms = algorithm.losses(client, client.batches(0, 1, algorithm.plan(client, 0, 1)).at(0), 0)
    names, parameters = zip(*client.model.named_parameters(), strict=True)
    found = {}
    for term, loss in terms.items():
        own = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        found[term] = dict(zip(names, own, strict=True))
    return found


@pytest.mark.parametrize("heads_see", ["embedding", "feature_map"])
@pytest.mark.parametrize("pull", [0.0, 0.6, 12])
def test_only_what_auxiliary_heads_send_into_the_backbone_is_scaled(
    pull: float, heads_see: str, tiny: Experiment
) -> None:
    ours, printed = gradients(tiny, pull, heads_see), gradients(tiny, "sum", heads_see)
    for term, by_name in printed.items():
        for name, expected in by_name.items():
            scaled = term == "prediction" and not name.startswith("heads.")
            factor = pull / (3.0 * 2) if scaled else 1.0
            torch.testing.assert_close(ours[term][name], factor * expected, rtol=1e-12, atol=1e-15)
            if name.startswith("backbone."):
                assert term == "embedding" or expected.abs().max() > 1e-9 or name.endswith("bias")
    assert any(own.abs().max() > 1e-6 for name, own in printed["prediction"].items() if name.startswith("backbone."))


@pytest.mark.parametrize("heads_see", ["embedding", "feature_map"])
@pytest.mark.parametrize("pull", [0.6, "sum"])
def test_auxiliary_heads_learn_own_labels_at_their_rate_and_pull_with_own_labels(
    pull: object, heads_see: str, tiny: Experiment
) -> None:
    """Each head gets 0.5 nu_aux times what a main head in its place would get, the backbone half their mean."""
    ours, without = (gradients(tiny, pull, heads_see, own_labels=share) for share in (0.5, 0.0))
    own = ours.pop("own_labels")
    for term, by_name in without.items():
        for name, expected in by_name.items():
            torch.testing.assert_close(ours[term][name], expected, rtol=1e-12, atol=1e-15)
    ensemble = assemble(tiny.with_values(algorithm=KNOBS, model={"heads_see": heads_see}), dtype=torch.float64)
    client = ensemble.clients[0]
    classes = client.model.shape_HC[1]
    assert own["heads.weight"][:classes].abs().max() == 0.0  # the main head has a term of its own
    batch = client.batches(0, 1, ensemble.resolved.algorithm.plan(client, 0, 1)).at(0)
    logits_BHC = client.model(batch.private.images)[0]
    loss = sum(cross_entropy(client.with_prior(logits_BHC[:, head]), batch.labels) for head in (1, 2))
    assert isinstance(loss, Tensor)
    for name, parameter in client.model.named_parameters():
        plain = torch.autograd.grad(loss, parameter, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
        factor = 0.5 * 3.0 if name.startswith("heads.") else 0.5 / 2
        torch.testing.assert_close(own[name], factor * plain, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("balance", "expected"), [(1.0, 1.0), (0.5, 1.0), (0.0, 0.0)])
def test_heads_that_are_not_balanced_learn_no_own_labels_by_default(
    balance: float, expected: float, tiny: Experiment
) -> None:
    resolved = resolve(tiny.with_values(training={"balance": balance}))
    assert isinstance(resolved.algorithm, MHD)
    assert resolved.algorithm.own_labels == expected


@pytest.mark.parametrize("pull", [0.6, "sum"])
def test_the_ramp_of_the_pull_holds_back_what_reaches_the_backbone_and_nothing_else(
    pull: object, tiny: Experiment
) -> None:
    """Step 0 of a ramp that begins at once: heads learn, and nothing but private samples reaches the backbone."""
    whole = gradients(tiny, pull, "embedding", own_labels=0.5)
    held = gradients(tiny, pull, "embedding", own_labels=0.5, pull_ramp={"hold": 0.0, "rise": 0.5})
    assert set(whole) == {*PRIVATE, "embedding", "prediction"}
    for term, by_name in whole.items():
        for name, expected in by_name.items():
            reaches = term in PRIVATE or (term == "prediction" and name.startswith("heads."))
            torch.testing.assert_close(held[term][name], expected if reaches else 0.0 * expected, rtol=1e-12, atol=0.0)


def test_the_ramp_of_distillation_holds_back_all_that_others_teach_and_no_own_label(tiny: Experiment) -> None:
    whole = gradients(tiny, 0.6, "embedding", own_labels=0.5)
    held = gradients(tiny, 0.6, "embedding", own_labels=0.5, ramp={"hold": 0.0, "rise": 0.5})
    for term, by_name in whole.items():
        for name, expected in by_name.items():
            own = expected if term in PRIVATE else 0.0 * expected
            torch.testing.assert_close(held[term][name], own, rtol=1e-12, atol=0.0)


def test_the_ramp_of_the_pull_rises(tiny: Experiment) -> None:
    knobs = {**KNOBS, "pull": 0.6, "pull_ramp": {"hold": 0.25, "rise": 0.5}}
    ensemble = assemble(tiny.with_values(algorithm=knobs, training={"steps": 8}))
    plan = ensemble.resolved.algorithm.plan(ensemble.clients[0], 0, 8)
    assert plan.arrays["pull ramp"].tolist() == [0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert plan.arrays["ramp"].tolist() == [1.0] * 8


def test_without_nu_aux_nothing_is_divided_by_it(tiny: Experiment) -> None:
    ensemble = assemble(tiny.with_values(algorithm={"nu_aux": 0.0, "pull": 0.3, "own_labels": 1.0}))
    exchange(ensemble, step=0)
    client, algorithm = ensemble.clients[0], ensemble.resolved.algorithm
    terms = algorithm.losses(client, client.batches(0, 1, algorithm.plan(client, 0, 1)).at(0), 0)
    assert terms["prediction"].item() == 0.0
    assert "own_labels" not in terms


@pytest.mark.parametrize("share", [-1, math.nan, math.inf, "max"])
def test_own_labels_that_are_none_is_one_line(share: Any, tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match=r"^algorithm\.own_labels") as error:
        resolve(tiny.with_values(algorithm={"own_labels": share}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("pull", [-1, -0.1, math.nan, math.inf, 1e7, True, "max", "0.3", [1.0]])
def test_a_pull_that_is_none_is_one_line(pull: Any, tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match=r"^algorithm\.pull") as error:
        resolve(tiny.with_values(algorithm={"pull": pull}))
    assert "\n" not in str(error.value)

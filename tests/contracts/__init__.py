"""The entries that go through every contract, and how a run is taken by hand.

An algorithm, a graph, a kind of snapshot or a confidence is tested here by being in its dict; an algorithm or a graph
also needs a line of knobs below.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from manyheads import Experiment
from manyheads.client.client import Client
from manyheads.data.batches import Samples
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.engine.threads import one_thread
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.exchange.request import Request
from manyheads.exchange.snapshot import Snapshot
from manyheads.setup.build import Ensemble
from manyheads.training.loop import windows
from tests.conftest import TINY

NONE, RISING = {"hold": 0.0, "rise": 0.0}, {"hold": 0.2, "rise": 0.5}
ALGORITHM_KNOBS: dict[str, dict[str, Any]] = {
    "mhd": {"pool_size": 3, "pool_every": 4, "ramp": {"hold": 0.0, "rise": 0.5}, "pull_ramp": NONE},
    "averaging": {"average_every": 5},
    "fedmd": {"first_private_steps": 4, "digest_steps": 4, "revisit_steps": 4, "alignment_samples": 40},
    "separate": {},
}
GRAPH_KNOBS: dict[str, dict[str, Any]] = {  # for four clients
    "complete": {},
    "cycle": {},
    "islands": {"size": 2},
    "chain": {},
    "star": {},
    "random_regular": {"degree": 2},
    "edges": {"edges": [[0, 1], [1, 2], [2, 3], [3, 2]]},
    "phases": {"phases": [{"steps": 5, "name": "islands", "size": 2}, {"name": "cycle"}]},
}
SNAPSHOTS = ("weights", "predictions")
SHORT = {"training": {"steps": 12, "log_every": 5}, "evaluate": {"every": 6}}
WHOLE = {"public_fraction": 0.04}  # so few public rows that a table holds all of them, instead of a window's


def mhd(**knobs: Any) -> dict[str, Any]:
    return {"name": "mhd", **ALGORITHM_KNOBS["mhd"], **knobs}


CASES: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": {"name": name, **knobs}} for name, knobs in ALGORITHM_KNOBS.items()},
    **{f"snapshot {kind}": {"algorithm": mhd(exchange=kind, pool_start="empty")} for kind in SNAPSHOTS},
    **{f"confidence {name}": {"algorithm": mhd(confidence=name, targets_per_step=2)} for name in CONFIDENCES},
    "whole tables": {"algorithm": mhd(exchange="predictions", same_level=True), "data": WHOLE},
    "density, sent": {"algorithm": mhd(exchange="predictions", confidence="density", self_target=True)},
    "mixture that remembers": {  # three epochs of the public set, some of which end within a batch
        "algorithm": mhd(
            select="mixture",
            sharpness=4.0,
            remember=0.8,
            pull=0.5,
            own_labels=0.7,
            pull_ramp=RISING,
            confidence="density",
        ),
        "data": WHOLE,
    },
    "a late first exchange": {
        "algorithm": mhd(exchange="predictions", confidence="density", pool_start="empty", fit_every=100),
    },
    "the surest are asked": {"algorithm": mhd(ask="surest", targets_per_step=2, confidence="density"), "data": WHOLE},
    "the surest are asked, with memory": {
        "algorithm": mhd(ask="surest", select="mixture", remember=0.5, pool_start="empty"),
        "data": WHOLE,
    },
    "the surest are asked for tables": {
        "algorithm": mhd(ask="surest", exchange="predictions", confidence="entropy"),
        "data": WHOLE,
    },
    "the surest are asked for rows": {
        "algorithm": mhd(ask="surest", exchange="predictions", confidence="density", pool_size=2),
        "data": {"public_fraction": 0.07},
    },
    "the surest are asked, different models": {
        "algorithm": mhd(ask="surest"),
        "model": {"backbone": ["tests.models.lab:dropping", "cnn", "cnn"], "width": [4, 3, 4]},
        "data": WHOLE,
    },
    "the surest are asked by groups": {
        "clients": 4,
        "groups": [[0, 3], [1, 2]],
        "algorithm": mhd(average_every=3, ask="surest"),
        "data": WHOLE,
    },
    "confidence of others": {"algorithm": mhd(confidence="tests.exchange.lab:second_guess")},
    "confidence of others, fitted": {"algorithm": mhd(exchange="predictions", confidence="tests.exchange.lab:Near")},
    **{f"graph {name}": {"clients": 4, "graph": {"name": name, **knobs}} for name, knobs in GRAPH_KNOBS.items()},
    "groups": {"clients": 4, "groups": [[0, 3], [1, 2]], "algorithm": mhd(average_every=3)},
    "models of different widths": {"model": {"width": [4, 3, 4]}},
    "heads that see feature maps": {"model": {"width": [4, 3, 4], "heads_see": "feature_map"}},
    "dropout": {
        "model": {"backbone": "fedmd0"},
        "training": {"batch_size": 2, "public_batch_size": 2},
    },
    "models of others": {"model": {"backbone": ["tests.models.lab:dropping", "tests.models.lab:Functional", "cnn"]}},
}


def experiment(case: str, **values: Any) -> Experiment:
    """Return the experiment of a case, with further values."""
    return Experiment(**TINY).with_values(**SHORT).with_values(**CASES[case]).with_values(**values)


def train_by_hand(ensemble: Ensemble, before_exchange: Callable[[int], None] | None = None) -> Tensor:
    """Run the loop over windows without records; return losses, steps x (client 0's terms, client 1's, ...)."""
    losses, steps = [], ensemble.resolved.experiment.training.steps
    with one_thread():
        exchange(ensemble, step=0)
        for window in windows(0, steps, ensemble.resolved.exchange_steps, ensemble.resolved.averaging_steps):
            trained = PlainTrainer().train(ensemble.clients, ensemble.resolved.algorithm, window, lambda _: None)
            losses.append(trained.values.permute(1, 0, 2).flatten(1))
            if before_exchange is not None:
                before_exchange(window.stop)
            exchange(ensemble, window.stop)
    return torch.cat(losses)


def stored_images(samples: Samples) -> Tensor:
    """Return the images of the whole set that the samples are part of: a test may change them in place."""
    return samples.pixels._stored


def stored_labels(samples: Samples) -> Tensor:
    """Return the labels of the whole set, as `stored_images` returns images."""
    assert samples._labels is not None
    return samples._labels


def weights(ensemble: Ensemble) -> list[bytes]:
    """Return the numbers of every client."""
    return [client.state.values.numpy().tobytes() for client in ensemble.clients]


def whole_snapshot(client: Client, step: int) -> Snapshot:
    """Return the snapshot of a client, with every row."""
    client.owner.begin_exchange(step)
    request = Request(client.index, client.index, step, None)
    snapshot = client.origin.accept(request, client.owner.answer(request))
    client.owner.end_exchange()
    return snapshot

"""Accuracy against bytes: the runs that show what an exchange is worth."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manyheads.config.experiment import Experiment
from manyheads.errors import ConfigurationError
from manyheads.imports import Trust

if TYPE_CHECKING:  # algorithms import PyTorch; the paper's tables, which have such cells, are listed without it
    from manyheads.algorithms.base import Sends


@dataclass(frozen=True)
class FrontierPoint:
    """A point of the frontier: an experiment, and what its clients send."""

    sends: "Sends"
    experiment: Experiment


def frontier_points(experiment: Experiment, classes: int) -> dict[str, FrontierPoint]:
    """Return the points by name: the experiment as it is, smaller and smaller tables of predictions, averaged weights
    (if all clients have the same model), and each client alone.
    """
    from manyheads.algorithms import make_algorithm

    algorithm, own = make_algorithm(experiment.algorithm, Trust.full()), experiment.algorithm.options()
    lighter = algorithm.knobs_sending_less(classes)
    if not lighter:
        raise ConfigurationError(
            f'algorithm.name = "{experiment.algorithm.name}": a frontier starts from an experiment with "mhd"'
        )

    def point(sends: "Sends", **values: Any) -> FrontierPoint:
        return FrontierPoint(sends, experiment.with_values(**values))

    def averaging(every: int, **values: Any) -> FrontierPoint:
        knobs = {"name": "averaging", "average_every": every}
        return point("averaging", algorithm=knobs, groups=[], **values)

    made = {
        name: point("weights" if name == "weights" else "predictions", algorithm=knobs)
        for name, knobs in lighter.items()
    }
    pool_every = int(own.get("pool_every", 100))
    one_model = all(
        experiment.model.for_client(0) == experiment.model.for_client(client) for client in range(experiment.clients)
    )
    if one_model:  # weights of different models cannot be averaged
        for every in dict.fromkeys((pool_every, min(10 * pool_every, experiment.training.steps))):
            # FedAvg averages over everybody, whatever the graph; a group would be a node of its own.
            made[f"FedAvg every {every}"] = averaging(every, graph={"name": "complete"})
        if experiment.graph.name != "complete" and not experiment.groups:
            made[f"gossip every {pool_every}"] = averaging(pool_every)
    made["separate"] = point("nothing", algorithm={"name": "separate"}, groups=[])
    return made

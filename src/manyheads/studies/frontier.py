"""Bytes against accuracy: the runs that show what an exchange is worth."""

from dataclasses import dataclass
from typing import Any, Literal

from manyheads.config.experiment import Experiment
from manyheads.errors import ConfigurationError

Kind = Literal["predictions", "weights", "averaging", "alone"]


@dataclass(frozen=True)
class Cell:
    """One point of the frontier."""

    kind: Kind
    experiment: Experiment


def check_start(experiment: Experiment) -> None:
    """Refuse an experiment that exchanges neither checkpoints nor predictions."""
    if experiment.algorithm.name != "mhd":
        raise ConfigurationError(
            f'algorithm.name = "{experiment.algorithm.name}": a frontier starts from an experiment with "mhd"'
        )


def cells(experiment: Experiment, classes: int) -> dict[str, Cell]:
    """Return the points by name: the experiment as it is, smaller and smaller tables of predictions, averaged weights
    (if all clients have the same model), and each client alone.
    """
    own = experiment.algorithm.options()

    def predictions(top_k: int, precision: str, embedding: bool) -> Cell:
        knobs = {"exchange": "predictions", "top_k": top_k, "precision": precision, "send_embedding": embedding}
        return Cell("predictions", experiment.with_values(algorithm=knobs | ({} if embedding else {"nu_emb": 0.0})))

    def averaging(every: int, **values: Any) -> Cell:
        knobs = {"name": "averaging", "average_every": every}
        return Cell("averaging", experiment.with_values(algorithm=knobs, groups=[], **values))

    made = {"weights": Cell("weights", experiment.with_values(algorithm={"exchange": "weights"}))}
    for top_k in sorted({1, min(3, classes), classes}, reverse=True):
        made[f"top {top_k}, float16"] = predictions(top_k, "float16", embedding=False)
    made[f"top {min(3, classes)}, 8 bits"] = predictions(min(3, classes), "uint8", embedding=False)
    if own.get("nu_emb", 1.0) > 0.0:
        made[f"top {min(3, classes)}, float16, embedding"] = predictions(min(3, classes), "float16", embedding=True)
    pool_every = int(own.get("pool_every", 100))
    one_model = all(experiment.model.of(0) == experiment.model.of(client) for client in range(experiment.clients))
    if one_model:  # weights of different models cannot be averaged
        for every in dict.fromkeys((pool_every, min(10 * pool_every, experiment.training.steps))):
            # FedAvg hears everybody, whatever the graph; a group would be a node of its own.
            made[f"FedAvg every {every}"] = averaging(every, graph={"name": "complete"})
        if experiment.graph.name != "complete" and not experiment.groups:
            made[f"gossip every {pool_every}"] = averaging(pool_every)
    made["separate"] = Cell("alone", experiment.with_values(algorithm={"name": "separate"}, groups=[]))
    return made

"""Cells that several tables share."""

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.claims import Quantity, at
from manyheads.studies.paper.measures import LAST, Measure
from manyheads.studies.paper.scales import Scale

SKEWS = (0, 100)


def skewed(experiment: Experiment, skew: int) -> Experiment:
    return experiment.with_values(data={"skew": float(skew)})


def with_heads(scale: Scale, heads: int) -> Experiment:
    return scale.mhd.with_values(model={"auxiliary_heads": heads})


def all_public(scale: Scale) -> dict[str, object]:
    """Return `[data]` keys: the whole training set as public data, as many private samples as before."""
    return {"public": "all", "private_fraction": scale.mhd.data.private_share}


def last_head(skew: int, who: str, measure: Measure = LAST) -> Quantity:
    return at(f"s = {skew}, {who}", measure)

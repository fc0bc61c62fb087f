"""The paper's tables and figures by name."""

from manyheads.reproduce.ablations import (
    CONFIDENCE,
    HEADS_OF_A_CHAIN,
    PUBLIC,
    SELF,
    TARGETS,
    VARIANTS,
)
from manyheads.reproduce.base import Reproduction
from manyheads.reproduce.choice import CHOICE
from manyheads.reproduce.comparisons import BASELINES, COMMUNICATION, FEDMD, HETEROGENEOUS, TOPOLOGIES
from manyheads.reproduce.regularization import REGULARIZATION

NAMES: dict[str, Reproduction] = {
    "baselines": BASELINES,
    "fedmd": FEDMD,
    "regularization": REGULARIZATION,
    "heads": HEADS_OF_A_CHAIN,
    "targets": TARGETS,
    "confidence": CONFIDENCE,
    "self": SELF,
    "variants": VARIANTS,
    "public": PUBLIC,
    "topologies": TOPOLOGIES,
    "heterogeneous": HETEROGENEOUS,
    "communication": COMMUNICATION,
    "choice": CHOICE,
}

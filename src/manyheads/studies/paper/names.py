"""The reproductions, by the names that `manyheads reproduce` takes."""

from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.tables.baselines import BASELINES
from manyheads.studies.paper.tables.beyond import BEYOND
from manyheads.studies.paper.tables.choice import CHOICE
from manyheads.studies.paper.tables.communication import COMMUNICATION
from manyheads.studies.paper.tables.confidence import CONFIDENCE
from manyheads.studies.paper.tables.fedmd import FEDMD
from manyheads.studies.paper.tables.heads import HEADS_OF_A_CHAIN
from manyheads.studies.paper.tables.heterogeneous import HETEROGENEOUS
from manyheads.studies.paper.tables.public import PUBLIC
from manyheads.studies.paper.tables.regularization import REGULARIZATION
from manyheads.studies.paper.tables.self_target import SELF
from manyheads.studies.paper.tables.targets import TARGETS
from manyheads.studies.paper.tables.topologies import TOPOLOGIES
from manyheads.studies.paper.tables.variants import VARIANTS

REPRODUCTIONS: dict[str, Reproduction] = {
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
    "beyond": BEYOND,
    "choice": CHOICE,
}

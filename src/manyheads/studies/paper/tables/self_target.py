"""Section 4.2.2: skipping samples on which the head is already more confident than its target."""

from manyheads.studies.paper.claims import Claim, above, at, near
from manyheads.studies.paper.measures import HEADS, PRIVATE, SHARED
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.common import SKEWS, skewed, with_heads


def _self(scale: Scale) -> Cells:
    cells: Cells = {}
    for skew in SKEWS:
        one = skewed(with_heads(scale, 1), skew)
        cells[f"s = {skew}, always"] = one
        cells[f"s = {skew}, skip"] = one.with_values(algorithm={"self_target": True})
    return cells


SELF = Reproduction(
    name="self",
    title="Skipping what the head already knows, one head",
    where="Section 4.2.2",
    cells=_self,
    measures=(PRIVATE, SHARED, HEADS[0]),
    printed={
        ("s = 100, always", HEADS[0].label): 44.7,
        ("s = 100, skip", HEADS[0].label): 46.5,
        ("s = 100, always", PRIVATE.label): 72.2,
        ("s = 100, skip", PRIVATE.label): 72.2,
    },
    claims=(
        Claim(
            "At s = 100 skipping improves the auxiliary head.",
            [above(at("s = 100, skip", HEADS[0]), at("s = 100, always", HEADS[0]))],
        ),
        Claim(
            "It has virtually no effect on the main head's private accuracy (within 0.5 points at s = 100).",
            [near(at("s = 100, skip", PRIVATE), at("s = 100, always", PRIVATE), within=0.5)],
        ),
        Claim(
            "At s = 0 it has virtually no effect (auxiliary head within 0.5 points).",
            [near(at("s = 0, skip", HEADS[0]), at("s = 0, always", HEADS[0]), within=0.5)],
        ),
    ),
)

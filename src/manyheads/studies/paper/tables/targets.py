"""Section 4.2.2: the number of targets in a step."""

from manyheads.studies.paper.claims import Check, Claim, above, at, near, rising
from manyheads.studies.paper.measures import HEADS, LAST, PRIVATE, SHARED
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale


def _targets_cell(targets: int) -> str:
    return f"{targets} target{'s' if targets > 1 else ''}"


def _targets(scale: Scale) -> Cells:
    return {_targets_cell(n): scale.mhd.with_values(algorithm={"targets_per_step": n}) for n in range(1, 5)}


ONE, TWO, THREE, FOUR = (_targets_cell(n) for n in range(1, 5))
TARGETS = Reproduction(
    name="targets",
    title="How many targets in a step (Delta)",
    where="Section 4.2.2",
    cells=_targets,
    measures=(PRIVATE, SHARED, *HEADS),
    printed={
        (ONE, HEADS[3].label): 54.5,
        (TWO, HEADS[3].label): 56.1,
        (THREE, HEADS[3].label): 56.4,
        (FOUR, HEADS[3].label): 56.2,
    },
    claims=(
        Claim(
            "The last head gains from two targets over one, and from three over two.",
            rising(at(ONE, LAST), at(TWO, LAST), at(THREE, LAST)),
        ),
        Claim(
            "It saturates: four targets gain less than 0.5 points over three (last head).",
            [Check(at(FOUR, LAST) - at(THREE, LAST), below=0.5)],
            changed=True,
        ),
        Claim(
            "The private accuracy of the main head hardly changes with two or three targets (within 1 point of one).",
            [near(at(cell, PRIVATE), at(ONE, PRIVATE), within=1.0) for cell in (TWO, THREE)],
        ),
        Claim(
            "Earlier heads gain more: from one target to three, head 1 gains more than head 4.",
            [above(at(THREE, HEADS[0]) - at(ONE, HEADS[0]), at(THREE, HEADS[3]) - at(ONE, HEADS[3]))],
        ),
    ),
)

"""Section 4.2.2: the most confident teacher compared with a random one."""

from manyheads.studies.paper.claims import Claim, above, at
from manyheads.studies.paper.measures import HEADS, LAST, PRIVATE, SHARED
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.common import skewed, with_heads


def _confidence(scale: Scale) -> Cells:
    at_0, at_100 = skewed(with_heads(scale, 3), 0), scale.mhd
    return {
        SURE_0: at_0,
        RANDOM_0: at_0.with_values(algorithm={"select": "random"}),
        SURE: at_100,
        RANDOM: at_100.with_values(algorithm={"select": "random"}),
        DENSITY: at_100.with_values(algorithm={"confidence": "density"}),
    }


SURE_0, RANDOM_0, SURE, RANDOM, DENSITY = (
    "s = 0, most confident", "s = 0, random", "s = 100, most confident", "s = 100, random", "s = 100, density",
)  # fmt: skip
CONFIDENCE = Reproduction(
    name="confidence",
    title="Whom to learn from: the most confident, or anybody",
    where="Section 4.2.2; density is Appendix A's suggestion",
    cells=_confidence,
    measures=(PRIVATE, SHARED, *HEADS),
    printed={
        (SURE_0, PRIVATE.label): 56.0,
        (RANDOM_0, PRIVATE.label): 55.2,
        (SURE_0, HEADS[2].label): 59.5,
        (RANDOM_0, HEADS[2].label): 58.4,
        (SURE, PRIVATE.label): 72.1,
        (RANDOM, PRIVATE.label): 71.3,
        (SURE, HEADS[3].label): 54.5,
        (RANDOM, HEADS[3].label): 49.0,
    },
    claims=(
        Claim(
            "A random target is worse than the most confident one: the last head at both skews.",
            [above(at(SURE_0, LAST), at(RANDOM_0, LAST)), above(at(SURE, LAST), at(RANDOM, LAST))],
        ),
        Claim(
            "A random target costs the main head private accuracy, at both skews.",
            [above(at(SURE_0, PRIVATE), at(RANDOM_0, PRIVATE)), above(at(SURE, PRIVATE), at(RANDOM, PRIVATE))],
        ),
        Claim(
            "It costs more where data are skewed (last head).",
            [above(at(SURE, LAST) - at(RANDOM, LAST), at(SURE_0, LAST) - at(RANDOM_0, LAST))],
        ),
        Claim(
            "A density model is a better judge than the largest probability (last head).",
            [above(at(DENSITY, LAST), at(SURE, LAST))],
            ours=True,
        ),
    ),
)

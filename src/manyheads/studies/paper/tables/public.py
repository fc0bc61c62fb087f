"""Table 4: the size of the public set."""

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.claims import Claim, above, at, rising
from manyheads.studies.paper.measures import HEADS, LAST, PRIVATE, SHARED
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale


def _public(scale: Scale) -> Cells:
    def made(**data: object) -> Experiment:
        return scale.mhd.with_values(data={"validation_fraction": 0.0, "private_fraction": 0.7, **data})

    parts = {f"{percent} %": made(public_fraction=percent / 100) for percent in (10, 20, 30)}
    return parts | {"all": made(public="all")}


PUBLIC = Reproduction(
    name="public",
    title="How much public data, with private data fixed at 70 %",
    where="Table 4, Appendix B.2",
    cells=_public,
    measures=(PRIVATE, SHARED, *HEADS),
    printed={
        (cell, measure.label): value
        for cell, values in {
            "10 %": (70.1, 52.4),
            "20 %": (71.1, 53.9),
            "30 %": (70.9, 54.1),
            "all": (71.9, 55.3),
        }.items()
        for measure, value in zip((PRIVATE, HEADS[3]), values, strict=True)
    },
    claims=(
        Claim(
            "More public data, more shared accuracy of the last head: 10, 20, 30 %, all.",
            rising(*(at(cell, LAST) for cell in ("10 %", "20 %", "30 %", "all"))),
        ),
        Claim(
            "All data as public data helps the main head's private accuracy, too (over 10 %).",
            [above(at("all", PRIVATE), at("10 %", PRIVATE))],
        ),
    ),
)

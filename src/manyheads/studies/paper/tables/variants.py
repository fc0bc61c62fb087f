"""Table 3: more targets, same-level heads and the head itself as candidates."""

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.claims import Check, Claim, above, at
from manyheads.studies.paper.measures import BEST, HEADS, LAST, PRIVATE
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.common import all_public
from manyheads.studies.paper.tables.heads import peaks_at_the_second


def _variants(scale: Scale) -> Cells:
    def made(**knobs: object) -> Experiment:
        return scale.mhd.with_values(algorithm=knobs)

    every = made(targets_per_step=2, same_level=True, self_target=True)
    plus = every.with_values(data=all_public(scale))
    return {
        "Base": scale.mhd,
        "Delta = 2": made(targets_per_step=2),
        "SL": made(same_level=True),
        "SF": made(self_target=True),
        "SL+SF": made(same_level=True, self_target=True),
        "All": every,
        "All+": plus,
        "All+, longer": plus.with_values(training=scale.longer(3)),
    }


_VARIANTS_PRINTED = {
    "Base": (70.9, 46.7, 51.8, 53.9, 54.6),
    "Delta = 2": (71.1, 50.9, 55.1, 56.1, 56.0),
    "SL": (70.8, 48.6, 53.6, 54.7, 54.7),
    "SF": (71.3, 48.1, 53.4, 54.9, 54.8),
    "SL+SF": (70.3, 53.0, 55.5, 53.9, 52.4),
    "All": (70.8, 53.5, 55.8, 54.5, 52.9),
    "All+": (72.7, 56.5, 59.4, 57.9, 56.1),
    "All+, longer": (76.2, 62.3, 65.7, 65.0, 64.0),
}
VARIANTS = Reproduction(
    name="variants",
    title="Same-level heads and the head itself as targets",
    where="Table 3, Appendix B.1",
    cells=_variants,
    measures=(PRIVATE, *HEADS),
    printed={
        (cell, measure.label): value
        for cell, values in _VARIANTS_PRINTED.items()
        for measure, value in zip((PRIVATE, *HEADS), values, strict=True)
    },
    claims=(
        Claim("Two targets instead of one improve the best head.", [above(at("Delta = 2", BEST), at("Base", BEST))]),
        Claim(
            "Alone, same-level heads or the head itself help early heads only: head 1 gains, the last gains less than "
            "0.5 points.",
            [
                *(above(at(cell, HEADS[0]), at("Base", HEADS[0])) for cell in ("SL", "SF")),
                *(Check(at(cell, LAST) - at("Base", LAST), below=0.5) for cell in ("SL", "SF")),
            ],
            changed=True,
        ),
        Claim("Together (SL+SF) they improve the best head.", [above(at("SL+SF", BEST), at("Base", BEST))]),
        Claim(
            "Together (SL+SF) the second head is the best, and later ones fall.",
            [*peaks_at_the_second("SL+SF"), above(at("SL+SF", HEADS[2]), at("SL+SF", HEADS[3]))],
        ),
        Claim(
            "All data as public data improves the best head (All+ over All).",
            [above(at("All+", BEST), at("All", BEST))],
        ),
        Claim(
            "Three times as many steps improve it again.",
            [above(at("All+, longer", BEST), at("All+", BEST))],
        ),
    ),
)

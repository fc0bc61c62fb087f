"""What each knob of MHD does: heads, targets, confidence, variants, public data."""

from itertools import product

from manyheads.experiment import Experiment
from manyheads.reproduce.base import (
    BEST,
    HEADS,
    LAST,
    PRIVATE,
    PRIVATE_HEADS,
    SHARED,
    Cells,
    Check,
    Claim,
    Printed,
    Reproduction,
    above,
    at,
    falling,
    near,
    rising,
)
from manyheads.reproduce.scales import Scale

SKEWS = (0, 100)


def skewed(experiment: Experiment, skew: int) -> Experiment:
    return experiment.with_values(data={"skew": float(skew)})


def with_heads(scale: Scale, heads: int) -> Experiment:
    return scale.mhd.with_values(model={"auxiliary_heads": heads})


# --- heads: Figure 4, Tables 7 and 8


def heads_cell(skew: int, heads: int) -> str:
    return f"s = {skew}, {heads} head{'s' if heads > 1 else ''}"


def _heads(scale: Scale) -> Cells:
    return {
        heads_cell(skew, heads): skewed(with_heads(scale, heads), skew) for skew, heads in product(SKEWS, range(1, 5))
    }


_HEADS_PRINTED = {  # for 1 to 4 heads: private and shared of the main head, then of each auxiliary head
    0: (
        (56.2, 56.1, 59.6, 59.4),
        (56.1, 55.8, 59.6, 59.5, 60.0, 59.7),
        (55.8, 55.8, 59.4, 59.6, 59.7, 59.9, 59.5, 59.5),
        (55.9, 55.5, 59.4, 59.4, 59.7, 59.5, 59.1, 59.1, 58.7, 58.6),
    ),
    100: (
        (72.5, 30.5, 71.4, 44.7),
        (71.6, 32.5, 70.6, 46.6, 68.5, 51.6),
        (71.1, 33.1, 70.7, 46.9, 68.1, 52.0, 66.1, 53.8),
        (72.5, 32.7, 71.4, 46.4, 68.7, 51.6, 66.1, 53.6, 63.4, 54.5),
    ),
}


def _heads_printed() -> Printed:
    order = [PRIVATE, SHARED]
    for own, common in zip(PRIVATE_HEADS, HEADS, strict=True):
        order += [own, common]
    return {
        (heads_cell(skew, heads), measure.label): value
        for skew in SKEWS
        for heads, values in enumerate(_HEADS_PRINTED[skew], start=1)
        for measure, value in zip(order, values, strict=False)
    }


def _peaks_at_the_second(cell: str) -> list[Check]:
    return [above(at(cell, HEADS[1]), at(cell, head)) for head in (HEADS[0], HEADS[2], HEADS[3])]


FOUR_0, FOUR_100 = heads_cell(0, 4), heads_cell(100, 4)
HEADS_OF_A_CHAIN = Reproduction(
    name="heads",
    title="How many auxiliary heads",
    where="Figure 4, Tables 7 and 8, Section 4.2.2",
    cells=_heads,
    measures=(PRIVATE, SHARED, *HEADS, *PRIVATE_HEADS),
    printed=_heads_printed(),
    seeds=3,
    figure="heads",
    claims=(
        Claim(
            "At s = 100 the shared accuracy of the last head rises with the number of heads.",
            rising(*(at(heads_cell(100, heads), LAST) for heads in range(1, 5))),
        ),
        Claim(
            "At s = 100 with four heads, each head has more shared accuracy than the one before.",
            rising(at(FOUR_100, SHARED), *(at(FOUR_100, head) for head in HEADS)),
        ),
        Claim(
            "At s = 100 the main head is the best on private data, and each later head is behind the one before.",
            falling(at(FOUR_100, PRIVATE), *(at(FOUR_100, head) for head in PRIVATE_HEADS)),
        ),
        Claim(
            "At s = 0 the second auxiliary head is the best of four.",
            _peaks_at_the_second(FOUR_0),
        ),
        Claim(
            "At s = 0 more heads help auxiliary heads 1 and 2 until there are three, and no longer with four.",
            [
                *rising(*(at(heads_cell(0, heads), HEADS[0]) for heads in (1, 2, 3))),
                above(at(heads_cell(0, 3), HEADS[0]), at(FOUR_0, HEADS[0])),
                above(at(heads_cell(0, 3), HEADS[1]), at(heads_cell(0, 2), HEADS[1])),
                above(at(heads_cell(0, 3), HEADS[1]), at(FOUR_0, HEADS[1])),
            ],
        ),
        Claim(
            "At s = 0 every auxiliary head is better than the main head.",
            [above(at(FOUR_0, head), at(FOUR_0, SHARED)) for head in HEADS],
        ),
        Claim(
            "At s = 100 head 4 is at least 3 points above head 1.",
            [above(at(FOUR_100, HEADS[3]), at(FOUR_100, HEADS[0]), by=3.0)],
            ours=True,
        ),
    ),
)

# --- targets: Section 4.2.2


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

# --- confidence: Section 4.2.2


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

# --- self: Section 4.2.2


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

# --- variants: Table 3


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


def all_public(scale: Scale) -> dict[str, object]:
    """The whole training set as public data, with as many private samples as before."""
    return {"public": "all", "private_fraction": scale.mhd.data.private_share}


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
            [*_peaks_at_the_second("SL+SF"), above(at("SL+SF", HEADS[2]), at("SL+SF", HEADS[3]))],
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

# --- public: Table 4


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

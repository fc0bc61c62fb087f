"""Figure 4, Tables 7 and 8: the number of auxiliary heads."""

from itertools import product

from manyheads.studies.paper.claims import Check, Claim, above, at, falling, rising
from manyheads.studies.paper.measures import HEADS, LAST, PRIVATE, PRIVATE_HEADS, SHARED
from manyheads.studies.paper.reproduction import Cells, Printed, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.common import SKEWS, skewed, with_heads


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


def peaks_at_the_second(cell: str) -> list[Check]:
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
            peaks_at_the_second(FOUR_0),
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

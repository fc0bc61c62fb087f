"""Figure 3, Tables 5 and 6: how strongly to distil embeddings and predictions."""

from collections.abc import Sequence
from itertools import product

from manyheads.studies.paper.claims import Check, Claim, Quantity, above, at, highest
from manyheads.studies.paper.measures import HEADS, PRIVATE, PRIVATE_HEADS, SHARED
from manyheads.studies.paper.reproduction import Cells, Printed, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.common import SKEWS, skewed, with_heads

AUX_PRIVATE, AUX_SHARED = PRIVATE_HEADS[0], HEADS[0]
NU_EMB, NU_AUX = (0, 1, 3), (0, 1, 3, 10)


def grid_cell(skew: int, nu_emb: int, nu_aux: int) -> str:
    return f"s = {skew}, nu_emb = {nu_emb}, nu_aux = {nu_aux}"


def _regularization(scale: Scale) -> Cells:
    one_head = with_heads(scale, 1).with_values(model=scale.grid)
    return {
        grid_cell(skew, emb, aux): skewed(one_head, skew).with_values(
            algorithm={"nu_emb": float(emb), "nu_aux": float(aux)}
        )
        for skew, emb, aux in product(SKEWS, NU_EMB, NU_AUX)
    }


_REGULARIZATION_PRINTED = {  # private and shared of the main head, private and shared of the auxiliary head
    0: (
        (46.3, 46.3, 0.1, 0.1), (52.2, 52.0, 56.0, 56.0), (54.1, 53.5, 57.3, 57.0), (54.3, 54.1, 57.1, 57.1),
        (48.5, 48.5, 0.1, 0.1), (53.6, 53.5, 57.3, 57.2), (55.4, 55.2, 58.6, 58.5), (54.1, 53.6, 56.9, 56.3),
        (48.3, 48.0, 0.1, 0.1), (54.3, 54.0, 58.2, 57.6), (55.7, 55.5, 59.3, 58.8), (53.3, 53.4, 56.5, 56.3),
    ),
    100: (
        (68.0, 25.2, 0.1, 0.1), (70.6, 29.1, 70.5, 42.0), (70.9, 30.0, 70.1, 43.3), (68.0, 25.3, 66.0, 39.7),
        (69.0, 26.0, 0.1, 0.1), (71.8, 29.8, 71.5, 43.0), (72.0, 29.9, 71.0, 44.1), (66.8, 23.0, 65.1, 37.5),
        (65.2, 24.9, 0.1, 0.1), (71.7, 29.7, 72.1, 39.1), (71.8, 29.7, 71.9, 40.8), (65.4, 23.1, 63.4, 36.4),
    ),
}  # fmt: skip


def _regularization_printed() -> Printed:
    measures = (PRIVATE, SHARED, AUX_PRIVATE, AUX_SHARED)
    return {
        (grid_cell(skew, emb, aux), measure.label): value
        for skew in SKEWS
        for (emb, aux), values in zip(product(NU_EMB, NU_AUX), _REGULARIZATION_PRINTED[skew], strict=True)
        for measure, value in zip(measures, values, strict=True)
    }


def _main_head_gains(better: tuple[int, int], worse: tuple[int, int], skews: Sequence[int] = SKEWS) -> list[Check]:
    """Check that one point of the grid is above another in private and shared accuracy of the main head."""
    return [
        above(at(grid_cell(skew, *better), measure), at(grid_cell(skew, *worse), measure))
        for measure, skew in product((PRIVATE, SHARED), skews)
    ]


def _best(skew: int, nu_emb: Sequence[int]) -> Quantity:
    """Return the auxiliary head's highest shared accuracy among the points where it is trained."""
    label = f"s = {skew}, nu_emb = {' or '.join(map(str, nu_emb))}: best {AUX_SHARED.label}"
    return highest(label, *(at(grid_cell(skew, emb, aux), AUX_SHARED) for emb, aux in product(nu_emb, NU_AUX[1:])))


def _peak(skew: int, nu_emb: int) -> list[Check]:
    """Check that the auxiliary head's shared accuracy peaks at nu_aux = 3 and this nu_emb."""
    others = [(emb, aux) for emb, aux in product(NU_EMB, NU_AUX[1:]) if (emb, aux) != (nu_emb, 3)]
    rest = highest("the best elsewhere", *(at(grid_cell(skew, *point), AUX_SHARED) for point in others))
    return [above(at(grid_cell(skew, nu_emb, 3), AUX_SHARED), rest)]


REGULARIZATION = Reproduction(
    name="regularization",
    title="How strongly to distil embeddings and predictions",
    where="Figure 3, Tables 5 and 6, Section 4.2.1",
    cells=_regularization,
    measures=(PRIVATE, SHARED, AUX_PRIVATE, AUX_SHARED),
    printed=_regularization_printed(),
    figure="regularization",
    claims=(
        Claim(
            "Prediction distillation alone (nu_aux = 3) improves the main head, private and shared, at both skews.",
            _main_head_gains((0, 3), (0, 0)),
        ),
        Claim(
            "Embedding distillation alone (nu_emb = 1) improves the main head, private and shared, at both skews.",
            _main_head_gains((1, 0), (0, 0)),
        ),
        *(
            Claim(
                f"At s = {skew} too much prediction distillation hurts: nu_aux = 10 is worse than 3 for the main head "
                "(nu_emb = 1).",
                _main_head_gains((1, 3), (1, 10), [skew]),
            )
            for skew in SKEWS
        ),
        Claim(
            "Too much embedding distillation hurts: alone, nu_emb = 3 is worse than nu_emb = 1 for the main head.",
            _main_head_gains((1, 0), (3, 0)),
        ),
        Claim(
            "Alone, prediction distillation (nu_aux = 3) does more for the main head than embedding distillation "
            "(nu_emb = 1).",
            _main_head_gains((0, 3), (1, 0)),
        ),
        Claim(
            "Embedding distillation helps at s = 0, and more than at s = 100 (shared accuracy of the main head).",
            [
                above(at(grid_cell(0, 1, 0), SHARED), at(grid_cell(0, 0, 0), SHARED)),
                above(
                    at(grid_cell(0, 1, 0), SHARED) - at(grid_cell(0, 0, 0), SHARED),
                    at(grid_cell(100, 1, 0), SHARED) - at(grid_cell(100, 0, 0), SHARED),
                ),
            ],
        ),
        Claim(
            "The best is a combination: the auxiliary head's best shared accuracy has both nu_emb and nu_aux above 0.",
            [above(_best(s, [emb for emb in NU_EMB if emb]), _best(s, [0])) for s in SKEWS],
        ),
        Claim(
            "The auxiliary head's shared accuracy peaks at nu_aux = 3, with nu_emb = 3 at s = 0 and 1 at s = 100.",
            [*_peak(0, 3), *_peak(100, 1)],
        ),
        Claim(
            "At s = 0 (nu_emb = 1, nu_aux = 3) the auxiliary head is better than the main head, private and shared.",
            [
                above(at(grid_cell(0, 1, 3), AUX_PRIVATE), at(grid_cell(0, 1, 3), PRIVATE)),
                above(at(grid_cell(0, 1, 3), AUX_SHARED), at(grid_cell(0, 1, 3), SHARED)),
            ],
        ),
        Claim(
            "At s = 100 (the same) the auxiliary head is far better on shared data (5 points), behind on private data.",
            [
                above(at(grid_cell(100, 1, 3), AUX_SHARED), at(grid_cell(100, 1, 3), SHARED), by=5.0),
                above(at(grid_cell(100, 1, 3), PRIVATE), at(grid_cell(100, 1, 3), AUX_PRIVATE)),
            ],
        ),
    ),
)

"""Section 4.5: clients with different models."""

from statistics import mean

from manyheads.studies.paper.claims import Claim, above, at
from manyheads.studies.paper.measures import LAST, PRIVATE, Measure
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.baselines import alone_cell, averaging_cell
from manyheads.studies.paper.tables.fedmd import last_heads


def _heterogeneous(scale: Scale) -> Cells:
    four = scale.mhd.with_values(
        clients=4,
        data={"primary_labels": {"per_client": scale.classes // 2}},
        algorithm={"pool_size": 4},
        training=scale.longer(4),
    )
    keys = scale.small.keys()
    mixed = {key: [scale.large[key], *[scale.small[key]] * 3] for key in keys}
    small, one_large = four.with_values(model=scale.small), four.with_values(model=mixed)
    return {
        "all small": small,
        "one large": one_large,
        "each alone": alone_cell(one_large),
        "FedAvg of small": averaging_cell(small, scale.pool_every),
    }


SMALL = Measure("shared, clients 1 to 3", lambda result: 100.0 * mean(last_heads(result)[1:]))
LARGE = Measure("shared, client 0", lambda result: 100.0 * last_heads(result)[0])
HETEROGENEOUS = Reproduction(
    name="heterogeneous",
    title="One large model among small ones",
    where="Section 4.5",
    cells=_heterogeneous,
    measures=(PRIVATE, LAST, SMALL, LARGE),
    printed={
        ("all small", SMALL.label): 66.2,
        ("one large", SMALL.label): 66.7,
        ("one large", LARGE.label): 68.6,
        ("all small", LAST.label): 66.0,
        ("FedAvg of small", LAST.label): 67.7,
        ("each alone", LARGE.label): 39.4,
    },
    claims=(
        Claim(
            "Small clients gain from a large one among them.", [above(at("one large", SMALL), at("all small", SMALL))]
        ),
        Claim(
            "The large client, taught by small ones, knows more than small ones do among themselves.",
            [above(at("one large", LARGE), at("all small", LAST))],
        ),
        Claim(
            "The large client, taught by small ones, is above FedAvg of small ones.",
            [above(at("one large", LARGE), at("FedAvg of small", LAST))],
        ),
        Claim(
            "Alone, the large client is far behind (10 points).",
            [above(at("one large", LARGE), at("each alone", LARGE), by=10.0)],
        ),
    ),
)

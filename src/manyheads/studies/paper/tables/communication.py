"""Section 3.2, "Communication efficiency": what is sent, and what that costs."""

from statistics import mean

from manyheads.studies.frontier import frontier_points
from manyheads.studies.paper.claims import Check, Claim, above, at
from manyheads.studies.paper.measures import LAST, PRIVATE, SHARED, Measure
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.baselines import averaging_cell

MANY_VIEWS = "top 3, float16, 128 views"


def _communication(scale: Scale) -> Cells:
    points = frontier_points(scale.mhd, scale.classes)
    cells = {name: point.experiment for name, point in points.items() if point.sends != "averaging"}
    alone = cells.pop("separate")
    if scale.name == "cifar100":  # 102 epochs of public samples
        cells[MANY_VIEWS] = cells["top 3, float16"].with_values(data={"public_views": 128})
    return {
        **cells,
        "separate": alone,
        "FedAvg often": averaging_cell(scale.mhd, scale.pool_every),
        "FedAvg seldom": averaging_cell(scale.mhd, 5 * scale.pool_every),
    }


MEGABYTES = Measure("MB received per client", lambda result: mean(result.bytes_received) / 1e6, "MB")
COMMUNICATION = Reproduction(
    name="communication",
    title="What accuracy costs in bytes",
    where="Section 3.2",
    cells=_communication,
    measures=(MEGABYTES, PRIVATE, SHARED, LAST),
    figure="frontier",
    claims=(
        Claim(
            "Predictions (the three largest, no embedding) cost at most a tenth of averaging weights as often.",
            [Check(at("top 3, float16", MEGABYTES).percent_of(at("FedAvg often", MEGABYTES)), below=10.0)],
            ours=True,
        ),
        Claim(
            "The three largest probabilities, without embeddings, teach as well as checkpoints (at most 2 points "
            "below).",
            [above(at("top 3, float16", LAST), at("weights", LAST), by=-2.0)],
            ours=True,
            changed=True,
        ),
        Claim(
            "With 128 views of each public sample instead of one, three probabilities teach as well as checkpoints (at "
            "most 2 points below), for at most 5 % more bytes.",
            [
                above(at(MANY_VIEWS, LAST), at("weights", LAST), by=-2.0),
                Check(at(MANY_VIEWS, MEGABYTES).percent_of(at("top 3, float16", MEGABYTES)), below=105.0),
            ],
            ours=True,
            scale="cifar100",
        ),
    ),
)

"""Table 1: MHD compared with separate training, averaging and supervised training."""

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.claims import Check, Claim, above, at
from manyheads.studies.paper.measures import LAST, PRIVATE, SHARED
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.common import SKEWS, all_public, last_head, skewed


def averaging_cell(experiment: Experiment, every: int) -> Experiment:
    return experiment.with_values(algorithm={"name": "averaging", "average_every": every})


def alone_cell(experiment: Experiment) -> Experiment:
    return experiment.with_values(algorithm={"name": "separate"})


def _baselines(scale: Scale) -> Cells:
    cells: Cells = {}
    for skew in SKEWS:
        mhd = skewed(scale.mhd, skew)
        plus = mhd.with_values(data=all_public(scale), training=scale.longer(3))
        cells |= {
            f"s = {skew}, separate": alone_cell(mhd),
            f"s = {skew}, MHD": mhd,
            f"s = {skew}, MHD+": plus,
            f"s = {skew}, FedAvg often": averaging_cell(mhd, scale.pool_every),
            f"s = {skew}, FedAvg seldom": averaging_cell(mhd, 5 * scale.pool_every),
        }
    one = alone_cell(scale.mhd).with_values(clients=1, data={"skew": 0.0})
    return cells | {"supervised": one, "supervised, longer": one.with_values(training=scale.longer(3))}


SUPERVISED, LONGER = at("supervised", LAST), at("supervised, longer", LAST)


def _both(better: str, worse: str, by: float = 0.0) -> list[Check]:
    return [above(last_head(skew, better), last_head(skew, worse), by) for skew in SKEWS]


_TABLE_1 = {
    ("s = 0, separate", "s = 100, separate"): (46.3, 25.1),
    ("s = 0, MHD", "s = 100, MHD"): (59.9, 54.5),
    ("s = 0, MHD+", "s = 100, MHD+"): (68.6, 63.4),
    ("s = 0, FedAvg often", "s = 100, FedAvg often"): (70.5, 68.0),
    ("s = 0, FedAvg seldom", "s = 100, FedAvg seldom"): (69.1, 65.7),
    ("supervised",): (68.9,),
}
_ALONE = last_head(100, "separate")
BASELINES = Reproduction(
    name="baselines",
    title="MHD beside training alone, FedAvg and one model with all data",
    where="Table 1, Section 4.3",
    cells=_baselines,
    measures=(PRIVATE, SHARED, LAST),
    printed={
        (cell, LAST.label): value
        for cells, values in _TABLE_1.items()
        for cell, value in zip(cells, values, strict=True)
    },
    seeds=3,
    claims=(
        Claim("MHD is above separate training at both skews.", _both("MHD", "separate")),
        Claim(
            "Supervised training is above MHD at both skews.",
            [above(SUPERVISED, last_head(skew, "MHD")) for skew in SKEWS],
        ),
        Claim("All data public and three times the steps (MHD+) improve MHD at both skews.", _both("MHD+", "MHD")),
        Claim(
            "MHD reaches more where data are alike: s = 0 above s = 100.",
            [above(last_head(0, "MHD"), last_head(100, "MHD"))],
        ),
        Claim(
            "FedAvg, often or seldom, is above MHD at both skews.",
            _both("FedAvg often", "MHD") + _both("FedAvg seldom", "MHD"),
        ),
        Claim("FedAvg gains from averaging more often, at both skews.", _both("FedAvg often", "FedAvg seldom")),
        Claim(
            "FedAvg at s = 0, often or seldom, is above supervised training.",
            [above(last_head(0, who), SUPERVISED) for who in ("FedAvg often", "FedAvg seldom")],
        ),
        Claim(
            "MHD+ comes close to supervised training (of the paper's length): at most 6 points below at both skews.",
            [above(last_head(skew, "MHD+"), SUPERVISED, by=-6.0) for skew in SKEWS],
        ),
        Claim(
            "At s = 100 separate training lands within 3 points of 64 % private and 25 % shared accuracy.",
            [
                Check(last_head(100, "separate", PRIVATE), above=61.0, below=67.0),
                Check(last_head(100, "separate"), above=22.0, below=28.0),
            ],
            ours=True,
            scale="cifar100",
        ),
        Claim(
            "At s = 100 MHD is at least 12 points above separate training.",
            [above(last_head(100, "MHD"), last_head(100, "separate"), by=12.0)],
            ours=True,
        ),
        Claim(
            "At s = 100 MHD's main head keeps its private accuracy (at most 1.5 points below separate training).",
            [above(last_head(100, "MHD", PRIVATE), last_head(100, "separate", PRIVATE), by=-1.5)],
            ours=True,
            changed=True,
        ),
        Claim(
            "At s = 100 MHD+ closes two thirds of the gap between separate training and equally long supervised "
            "training (in percent of that gap).",
            [
                Check(
                    (last_head(100, "MHD+") - last_head(100, "separate")).percent_of(
                        LONGER - last_head(100, "separate")
                    ),
                    above=100.0 * 2 / 3,
                )
            ],
            ours=True,
        ),
    ),
)

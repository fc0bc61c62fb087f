"""The choice of each scale's schedule: on validation data, with MHD at s = 100, once for all cells.

FedMD has rounds instead of a pool, so it gets its own choice, with the data and networks of its table. These networks
also get a choice of what their heads see, and of the learning rate for that.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from manyheads.config.experiment import Experiment
from manyheads.studies.paper.measures import Measure
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.results import CellResult
from manyheads.studies.paper.scales import Scale
from manyheads.studies.paper.tables.fedmd import FEDMD


@dataclass(frozen=True)
class Candidate:
    """A schedule to choose from."""

    pool_every: int
    ramp: tuple[float, float]  # hold, rise
    faster: Fraction = Fraction(1)  # times the learning rate
    pool_start: str = "initial"
    heads: int | None = None  # other than the scale's
    longer: int = 1  # times the steps
    pull: float | None = None  # of all heads together at the backbone, instead of the printed sum
    pull_ramp: tuple[float, float] = (0.0, 0.0)  # of the pull only: heads learn from the first step

    def __str__(self) -> str:
        parts = [
            f"pool every {self.pool_every}",
            f"ramp {self.ramp[0]:g}/{self.ramp[1]:g}" if any(self.ramp) else "no ramp",
        ]
        parts += [f"{self.faster} x learning rate"] if self.faster != 1 else []
        parts += ["empty at first"] if self.pool_start == "empty" else []
        parts += ["one head"] if self.heads == 1 else []
        parts += [f"pull {self.pull:g}"] if self.pull is not None else []
        parts += [f"ramp of the pull {self.pull_ramp[0]:g}/{self.pull_ramp[1]:g}"] if any(self.pull_ramp) else []
        return ", ".join(parts + ([f"{self.longer} x the steps"] if self.longer > 1 else []))


def why_no_ramp_fails(pool_every: int) -> tuple[Candidate, ...]:
    """Return candidates that are not to be chosen but show why no ramp fails: step size, heads, length, or pull."""
    return (
        Candidate(pool_every, NONE, faster=Fraction(1, 3)),
        Candidate(pool_every, NONE, heads=1),
        Candidate(pool_every, NONE, longer=3),
        Candidate(pool_every, NONE, pull=0.3),
        Candidate(pool_every, NONE, pull=3.0),
        Candidate(pool_every, NONE, pull_ramp=LONG),
    )


SHORT, USUAL, LONG, LONGEST, NONE = (0.05, 0.15), (0.1, 0.3), (0.2, 0.4), (0.3, 0.5), (0.0, 0.0)
CANDIDATES = {
    "digits": (
        *(Candidate(every, ramp) for every, ramp in product((2, 5, 10, 20), (USUAL, LONG))),
        Candidate(2, NONE),  # the paper's, in its share of the steps
        Candidate(10, NONE),
        Candidate(10, NONE, pool_start="empty"),
        *why_no_ramp_fails(2),
    ),
    "cifar100": (
        *(Candidate(every, ramp) for every, ramp in product((25, 50), (USUAL, LONG))),
        Candidate(13, LONG),  # as often as in the paper, in its share of the steps
        Candidate(25, LONGEST),
        Candidate(100, USUAL),
        Candidate(100, USUAL, faster=Fraction(2)),
        Candidate(100, SHORT),
        Candidate(100, NONE),
        Candidate(100, NONE, pool_start="empty"),
        Candidate(13, NONE),  # the paper's, in its share of the steps
        *why_no_ramp_fails(13),
    ),
}
FEDMD_ROUNDS = {"digits": (), "cifar100": (4, 10, 40)}  # digits: benchmarks/rival_settings.py
NETWORK_RATES = {"digits": (), "cifar100": (0.05, 0.01)}  # learning rates of FedMD's networks
VALIDATION = {"validation_fraction": 0.1}


def _choice(scale: Scale) -> Cells:
    base = scale.mhd.with_values(data=VALIDATION)
    schedules = {str(candidate): _with(base, candidate) for candidate in CANDIDATES[scale.name]}
    return schedules | _of_fedmd(scale)


def _of_fedmd(scale: Scale) -> Cells:
    table = FEDMD.cells(scale)
    mhd, fedmd = (table[name].with_values(data=VALIDATION) for name in ("MHD", "FedMD"))
    before = fedmd.with_values(model={"heads_see": "embedding"})  # rounds were chosen before what heads see
    called = f"FedMD (as in fedmd), embedding, learning rate {before.training.learning_rate:g}"
    cells = {f"{called}, {rounds} rounds": _in_rounds(before, rounds) for rounds in FEDMD_ROUNDS[scale.name]}
    ways = product(("embedding", "feature_map"), NETWORK_RATES[scale.name], {"MHD": mhd, "FedMD": fedmd}.items())
    for seen, rate, (name, cell) in ways:
        found = cell.with_values(model={"heads_see": seen}, training={"learning_rate": rate})
        if found not in cells.values():  # as the ten rounds are
            cells[f"{name} (as in fedmd), {seen.replace('_', ' ')}, learning rate {rate:g}"] = found
    return cells


def _with(base: Experiment, candidate: Candidate) -> Experiment:
    hold, rise = candidate.ramp
    knobs: dict[str, object] = {
        "pool_every": candidate.pool_every,
        "pool_start": candidate.pool_start,
        "ramp": {"hold": hold, "rise": rise},
    }
    if candidate.pull is not None:
        knobs["pull"] = candidate.pull
    if any(candidate.pull_ramp):
        knobs["pull_ramp"] = dict(zip(("hold", "rise"), candidate.pull_ramp, strict=True))
    training = {
        "learning_rate": float(candidate.faster) * base.training.learning_rate,
        "steps": candidate.longer * base.training.steps,
    }
    model = {} if candidate.heads is None else {"auxiliary_heads": candidate.heads}
    return base.with_values(algorithm=knobs, training=training, model=model)


def _in_rounds(fedmd: Experiment, rounds: int) -> Experiment:
    """Return FedMD with `rounds` rounds: the same first steps, as many digest and revisit steps in all."""
    half = fedmd.training.steps // 2
    first = int(fedmd.algorithm.options()["first_private_steps"])
    return fedmd.with_values(algorithm={"digest_steps": half // rounds, "revisit_steps": (half - first) // rounds})


def _validation(label: str, task: str, head: int) -> Measure:
    def of(result: CellResult) -> float | None:
        return None if result.validation is None else 100.0 * result.validation[task][head]

    return Measure(label, of)


CHOICE = Reproduction(
    name="choice",
    title="The schedule, chosen on validation data",
    where="not in the paper",
    cells=_choice,
    measures=(
        _validation("private, validation", "private_accuracy", 0),
        _validation("shared, main head, validation", "shared_accuracy", 0),
        _validation("shared, last head, validation", "shared_accuracy", -1),
    ),
    claims=(),
    scales=("digits", "cifar100"),
)

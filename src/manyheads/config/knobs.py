"""The knobs of the algorithms that come with the package: known without PyTorch, so that a mistake is told at once."""

import math
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from manyheads.config.experiment import AlgorithmConfig
from manyheads.config.messages import build_section, nearest
from manyheads.config.types import (
    CHECKED,
    Ask,
    Count,
    Entries,
    Fraction,
    NonNegative,
    Positive,
    Precision,
    Pull,
    Rest,
    Section,
    Select,
    Weighting,
)
from manyheads.errors import ConfigurationError

POOL_SHARE, GROUP_SHARE, AVERAGING_SHARE = 300, 80, 100  # by default: exchanges or averagings in a run
FITS = 30  # by default: of a confidence, in a run
DEFAULT_TOP_K = 8
HALVINGS = 10  # by default what was heard about a sample halves so often in a run
MOST_REMEMBERED = 0.95
OWN_RATE = 0.5  # by default heads learn own labels at this learning rate at most: faster ones fly apart
MOST_NODES = 32  # by default the surest are asked in runs of so many clients: what each keeps grows with their number
Number = TypeVar("Number", int, float)


@plain_dataclass(frozen=True)
class RunSize:
    """The numbers of a run on which defaults depend."""

    steps: int
    nodes: int  # of the graph: clients, or groups
    classes: int
    grouped: bool = False
    passes: float = 1.0  # over the public set: of the whole run
    balanced: bool = True  # heads learn as if labels were even
    new_views: bool = False  # a public sample looks different each time
    learning_rate: float = 0.05

    def share(self, parts: int) -> int:
        """Return a part of the steps, at least one step.

        >>> RunSize(steps=600, nodes=8, classes=10).share(300)
        2
        """
        return max(1, self.steps // parts)


def known(value: Number | None) -> Number:
    """Return a knob that follows the schedule; `with_defaults` has filled it in."""
    assert value is not None, "with_defaults fills this in"
    return value


def usual_memory(passes: float) -> float:
    """Return how much of what was heard counts at the next visit of a sample, in a run of so many visits.

    It halves in a tenth of the run, in long runs sooner: after 14 visits of a sample at the latest.

    >>> [usual_memory(passes) for passes in (2.0, 10.0, 40.0, 100.0)]
    [0.03, 0.5, 0.84, 0.93]
    """
    return min(MOST_REMEMBERED, round(math.pow(0.5, HALVINGS / passes), 2))


def usual_own_labels(nu_aux: float, learning_rate: float) -> float:
    """Return how much auxiliary heads learn own labels: as much as what others say, up to a learning rate.

    >>> [usual_own_labels(10.0, learning_rate) for learning_rate in (0.01, 0.05, 0.2)]
    [1.0, 1.0, 0.25]
    """
    rate = nu_aux * learning_rate
    return 1.0 if rate <= OWN_RATE else round(OWN_RATE / rate, 4)


class Ramp(Section):
    """A factor that is zero for the first `hold` of all steps and rises to one over the next `rise`."""

    hold: Fraction = 0.0
    rise: Fraction = 0.0

    @property
    def in_use(self) -> bool:
        """Whether the factor is ever below one."""
        return self.hold > 0.0 or self.rise > 0.0


@dataclass(frozen=True, config=CHECKED)
class MHDKnobs:
    """The knobs of Multi-Headed Distillation, with the names of the paper (docs/experiment.md)."""

    exchange: Literal["weights", "predictions"] = "weights"
    top_k: Positive | None = None  # 8, or all classes where there are fewer
    precision: Precision = "float16"
    rest: Rest = "spread"
    send_embedding: bool = True
    nu_emb: NonNegative = 0.1
    nu_aux: NonNegative = 10.0  # how fast the auxiliary heads learn
    pull: Pull = 3.0  # how hard what they learn from others pulls at the backbone; the main head pulls with 1
    pull_ramp: Ramp = Ramp(hold=0.3, rise=0.5)  # of the pull of heads and embeddings; heads learn from the first step
    # How much the auxiliary heads learn from the client's own labels, too: 1, less where they would learn too fast, and
    # nothing if heads are not balanced.
    own_labels: NonNegative | None = None
    targets_per_step: Entries = 1
    # The snapshots that are drawn for a step ("drawn"), or for each sample those whose owners were surest of it
    # ("surest"): by default where samples look different each time and clients are not many.
    ask: Ask | None = None
    pool_size: Entries | None = None  # one entry for each node of the graph
    pool_every: Positive | None = None  # a 300th of the steps
    pool_start: Literal["initial", "empty"] = "initial"
    confidence: str | None = None  # density; max_probability where clients form groups
    fit_every: Positive | None = None  # steps between two fits of a confidence that is fitted; a 30th of the steps
    select: Select = "mixture"
    sharpness: NonNegative = 8.0  # in a mixture, weights are confidence to this power
    # Of what was heard about a sample when it was seen before; by default it halves in a tenth of the run, and nothing
    # counts where the surest are asked about ever new views: what was said of another view is no answer.
    remember: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    same_level: bool = False
    self_target: bool = False
    ramp: Ramp = Ramp()  # of both distillation terms as a whole
    average_every: Positive | None = None  # within groups; an 80th of the steps

    @model_validator(mode="after")
    def _fits(self) -> "MHDKnobs":
        if self.pool_size is not None and self.targets_per_step > self.pool_size:
            raise ValueError(
                f"targets_per_step = {self.targets_per_step}: at most pool_size = {self.pool_size} can be drawn"
            )
        if self.select == "all" and self.self_target:
            raise ValueError('self_target = true: has no meaning with select = "all", which does not choose')
        return self

    def with_defaults(self, size: RunSize) -> Self:
        """Return the knobs with the defaults that depend on the run."""
        ask = self.ask or ("surest" if size.new_views and size.nodes <= MOST_NODES else "drawn")
        remember = 0.0 if ask == "surest" and size.new_views else usual_memory(size.passes)
        own_labels = usual_own_labels(self.nu_aux, size.learning_rate) if size.balanced else 0.0
        return replace(
            self,
            ask=ask,
            top_k=self.top_k or min(DEFAULT_TOP_K, size.classes),
            pool_size=self.pool_size or max(size.nodes, self.targets_per_step),
            pool_every=self.pool_every or size.share(POOL_SHARE),
            average_every=self.average_every or size.share(GROUP_SHARE),
            own_labels=own_labels if self.own_labels is None else self.own_labels,
            remember=remember if self.remember is None else self.remember,
            fit_every=self.fit_every or size.share(FITS),
            confidence=self.confidence or ("max_probability" if size.grouped else "density"),
        )


@dataclass(frozen=True, config=CHECKED)
class AveragingKnobs:
    """The knobs of averaging: FedAvg and gossip."""

    average_every: Positive | None = None  # a 100th of the steps
    weighting: Weighting = "samples"

    def with_defaults(self, size: RunSize) -> Self:
        return replace(self, average_every=self.average_every or size.share(AVERAGING_SHARE))


@dataclass(frozen=True, config=CHECKED)
class FedMDKnobs:
    """The knobs of FedMD's rounds. By default there are ten, and before them some steps on private data."""

    first_public_steps: Count = 0  # with the labels of the public set
    first_private_steps: Count | None = None
    digest_steps: Positive | None = None
    revisit_steps: Positive | None = None
    alignment_samples: Positive = 5_000  # of the public set, drawn again each round; all if there are fewer
    nu_digest: NonNegative = 0.3

    def with_defaults(self, size: RunSize) -> Self:
        """Return the knobs with whole rounds: ten of them, after a twentieth of the steps on private data."""
        left = size.steps - self.first_public_steps
        digest = self.digest_steps or size.share(20)
        revisit = self.revisit_steps or max(1, 9 * size.steps // 200)
        rounds = max(1, 19 * left // 20 // (digest + revisit))
        usual = max(0, left - rounds * (digest + revisit))
        first = usual if self.first_private_steps is None else self.first_private_steps
        return replace(self, first_private_steps=first, digest_steps=digest, revisit_steps=revisit)


@dataclass(frozen=True, config=CHECKED)
class NoKnobs:
    """Separate training has none."""


KNOBS: dict[str, type] = {"mhd": MHDKnobs, "averaging": AveragingKnobs, "fedmd": FedMDKnobs, "separate": NoKnobs}
ALSO_KNOWN = {
    "fedavg": 'FedAvg is "averaging" on the complete graph',
    "gossip": 'gossip is "averaging" on any graph but the complete one',
    "supervised": 'that is "separate" with clients = 1',
    "local": 'that is "separate"',
}


def check_name(name: str) -> None:
    """Raise if there is no such algorithm. Whether code that a user names exists is seen when it is imported."""
    if name not in KNOBS and ":" not in name:
        raise ConfigurationError(
            f'algorithm.name = "{name}": unknown algorithm; '
            f"{ALSO_KNOWN.get(name.lower()) or nearest(name, KNOBS)}; "
            'your own is named "package.module:Class"'
        )


def check_knobs(config: AlgorithmConfig) -> None:
    """Raise if `[algorithm]` has keys that its algorithm does not know, or values that it does not take."""
    check_name(config.name)
    if config.name in KNOBS:
        make_knobs(config)


def make_knobs(config: AlgorithmConfig) -> Any:
    """Return the knobs that `[algorithm]` gives to an algorithm of this package."""
    return build_section(KNOBS[config.name], config.options(), "algorithm")

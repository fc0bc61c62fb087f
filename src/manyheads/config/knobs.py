"""The knobs of the algorithms that come with the package: known without PyTorch, so that a mistake is told at once."""

from typing import Any, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from manyheads.config.experiment import AlgorithmConfig
from manyheads.config.messages import build_section, nearest
from manyheads.config.types import (
    CHECKED,
    Count,
    Entries,
    Fraction,
    NonNegative,
    Positive,
    Precision,
    Rest,
    Section,
    Select,
    Weighting,
)
from manyheads.errors import ConfigurationError


class Ramp(Section):
    """The ramp of the distillation terms: zero for the first `hold` of all steps, rising over the next `rise`."""

    hold: Fraction = 0.1
    rise: Fraction = 0.3


@dataclass(frozen=True, config=CHECKED)
class MHDKnobs:
    """The knobs of Multi-Headed Distillation, with the names of the paper (docs/experiment.md)."""

    exchange: Literal["weights", "predictions"] = "weights"
    top_k: Positive | None = None  # 8, or all classes where there are fewer
    precision: Precision = "float16"
    rest: Rest = "spread"
    send_embedding: bool = True
    nu_emb: NonNegative = 1.0
    nu_aux: NonNegative = 3.0
    targets_per_step: Entries = 1
    pool_size: Entries = 8
    pool_every: Positive = 100
    pool_start: Literal["initial", "empty"] = "initial"
    confidence: str = "max_probability"
    select: Select = "most_confident"
    same_level: bool = False
    self_target: bool = False
    ramp: Ramp = Ramp()
    average_every: Positive = 50  # within groups

    @model_validator(mode="after")
    def _fits(self) -> "MHDKnobs":
        if self.targets_per_step > self.pool_size:
            raise ValueError(
                f"targets_per_step = {self.targets_per_step}: at most pool_size = {self.pool_size} can be drawn"
            )
        if self.select == "all" and self.self_target:
            raise ValueError('self_target = true: has no meaning with select = "all", which does not choose')
        return self


@dataclass(frozen=True, config=CHECKED)
class AveragingKnobs:
    """The knobs of averaging: FedAvg and gossip."""

    average_every: Positive = 100
    weighting: Weighting = "samples"


@dataclass(frozen=True, config=CHECKED)
class FedMDKnobs:
    """The knobs of FedMD's rounds."""

    first_public_steps: Count = 0  # with the labels of the public set
    first_private_steps: Count = 100
    digest_steps: Positive = 50
    revisit_steps: Positive = 50
    alignment_samples: Positive = 5_000  # of the public set, drawn again each round; all if there are fewer
    nu_digest: NonNegative = 0.3


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

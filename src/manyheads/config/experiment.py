"""The typed configuration of an experiment, read from TOML and written back.

The sections mirror the file: `[data]`, `[model]`, `[algorithm]`, `[graph]`, `[training]`, `[evaluate]`.
`[algorithm]` and `[graph]` are open here: the algorithm or graph that `name` names checks its own keys.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from manyheads.config.as_printed import filled_in, without_printed
from manyheads.config.data import DataConfig
from manyheads.config.messages import explain, known_keys
from manyheads.config.toml import apply_override, check_values, parse, read_text, sets_name, without_none
from manyheads.config.types import (
    MAX_CHANNELS,
    Clients,
    Count,
    Heads,
    NonNegative,
    OpenSection,
    Positive,
    Section,
    Steps,
)
from manyheads.errors import ConfigurationError
from manyheads.printable import shortened

WARMUP_SHARE, EVALUATIONS = 20, 4  # by default: steps for one of warm-up, and evaluations in a run


class AlgorithmConfig(OpenSection):
    name: str = "mhd"


class GraphConfig(OpenSection):
    name: str = "complete"


class ModelConfig(Section):
    backbone: str | list[str] = "resnet18"  # one for all, or a list with one per client; so is the width
    stem: Literal["small", "large"] = "small"
    width: int | list[int] = 64
    weights: str | list[str] | None = None  # a safetensors file to start the backbone from; "" in a list: none
    auxiliary_heads: Heads = 4
    # With our backbones: the mean of the last feature map, or all of it.
    heads_see: Literal["embedding", "feature_map"] = "embedding"

    @field_validator("backbone", mode="before")
    @classmethod
    def _names(cls, given: object) -> object:
        if not all(isinstance(name, str) for name in (given if isinstance(given, list) else [given])):
            raise ValueError("must be a name, or a list of names with one per client")
        return given

    @field_validator("width", mode="before")
    @classmethod
    def _widths(cls, given: object) -> object:
        widths = given if isinstance(given, list) else [given]
        if not all(type(width) is int and 0 < width <= MAX_CHANNELS for width in widths):
            raise ValueError(f"must be a number of channels from 1 to {MAX_CHANNELS:,}, or a list with one per client")
        return given

    @field_validator("weights", mode="before")
    @classmethod
    def _files(cls, given: object) -> object:
        if given is not None and not all(isinstance(x, str) for x in (given if isinstance(given, list) else [given])):
            raise ValueError('must be a safetensors file, or a list of files with one per client ("": none)')
        return given

    def for_client(self, client: int) -> "ModelConfig":
        """Return the model of one client."""
        own: dict[str, Any] = {key: getattr(self, key)[client] for key in self.lists}
        own["weights"] = own.get("weights", self.weights) or None
        return self.model_copy(update=own)

    @property
    def lists(self) -> dict[str, int]:
        """Return the keys that hold a list with one value per client, and the length of each list."""
        keys = ("backbone", "width", "weights")
        return {key: len(value) for key in keys if isinstance(value := getattr(self, key), list)}


class TrainingConfig(Section):
    steps: Steps = 4_000
    batch_size: Annotated[int, Field(ge=2)] = 128  # BatchNorm cannot learn from one sample
    public_batch_size: Annotated[int, Field(ge=2)] = 128
    learning_rate: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] = 0.05
    warmup_steps: Count = -1  # a twentieth of the steps
    schedule: Literal["cosine", "constant"] = "cosine"
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    weight_decay: Annotated[float, Field(ge=0.0, le=1e6)] = 5e-4
    balance: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 1.0  # how far labels count as even
    log_every: Positive = 50  # the longest window: losses are recorded at its end, and a stop drops no more than one
    save_seconds: NonNegative = 60.0

    @model_validator(mode="after")
    def _follow_steps(self) -> "TrainingConfig":
        if "warmup_steps" not in self.model_fields_set:
            self.__dict__["warmup_steps"] = self.steps // WARMUP_SHARE
        return self


class EvaluateConfig(Section):
    every: Positive | None = None  # None: a quarter of the steps
    probe: bool = False  # at the end: what a fresh linear head on each frozen embedding reaches
    relations: bool | None = None  # measure every pair of clients, too; None: if there are few clients


class Experiment(Section):
    """Everything that decides the numbers of a run. `Experiment.load` reads one; `str(experiment)` is its TOML.

    >>> experiment = Experiment(clients=8, data={"source": "digits"}, training={"steps": 100})
    >>> experiment.training.steps, experiment.algorithm.name
    (100, 'mhd')
    >>> Experiment.from_toml(str(experiment)) == experiment
    True
    """

    seed: Annotated[int, Field(ge=0)] = 0
    clients: Clients
    groups: list[list[int]] = []  # noqa: RUF012 - clients that average among themselves and are one node of the graph
    data: DataConfig
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    graph: GraphConfig = GraphConfig()
    training: TrainingConfig = TrainingConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @property
    def evaluate_every(self) -> int:
        """The steps between two evaluations."""
        return self.evaluate.every or max(1, self.training.steps // EVALUATIONS)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
            check_values(self.model_dump())  # one from Python may hold what TOML has no numbers for
        except ValidationError as error:
            raise ConfigurationError(explain(error, known=known_keys(type(self)))) from None
        except ValueError as error:
            raise ConfigurationError(str(error)) from None

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Experiment":
        """Read a TOML file; an override is `key.path=value`, with the value written as in TOML."""
        return cls.from_toml(read_text(Path(path)), str(path), overrides)

    @classmethod
    def of_run(cls, path: Path) -> "Experiment":
        """Read the file of a run folder; what it is too old to have means what it meant then."""
        return cls(**filled_in(cls._values(read_text(path), str(path))))

    @classmethod
    def from_toml(cls, text: str, name: str = "experiment", overrides: Iterable[str] = ()) -> "Experiment":
        """Read TOML text, which errors call `name`."""
        values = cls._values(text, name)
        # A new name comes first, because it drops the keys that belonged to the old one.
        for override in sorted(overrides, key=lambda text: not sets_name(text)):
            apply_override(values, override)
        return cls(**values)

    @staticmethod
    def _values(text: str, name: str) -> dict[str, Any]:
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigurationError(f"{name}: not valid TOML: {error}") from None

    def with_values(self, **values: Any) -> "Experiment":
        """Return the same experiment with some keys replaced; sections are dicts and are merged key by key.

        >>> digits = Experiment(clients=8, data={"source": "digits"})
        >>> digits.with_values(seed=1, training={"steps": 100}).training.steps
        100
        """
        merged = self.model_dump(exclude_unset=True)
        for key, value in values.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
                changed_name = key != "data" and "name" in value and value["name"] != merged[key].get("name")
                merged[key] = dict(value) if changed_name else {**merged[key], **value}
            else:
                merged[key] = value
        return Experiment(**without_none(merged))

    def __str__(self) -> str:
        return tomli_w.dumps(without_none(self.model_dump()))

    def as_file(self) -> bytes:
        """Return the bytes of its TOML, which is UTF-8: a path whose name is not cannot be written down."""
        text = str(self)
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            line = text.splitlines()[text.count("\n", 0, error.start)].strip(" ,")
            raise ConfigurationError(f"{shortened(line)}: is not UTF-8, which experiment.toml is; rename it") from None

    def keys(self) -> dict[str, object]:
        """Return every key that decides numbers, except the seed, by its path: `training.steps`."""
        found: dict[str, object] = {}

        def add(values: Mapping[str, Any], prefix: str) -> None:
            for key, value in values.items():
                if isinstance(value, Mapping):
                    add(value, f"{prefix}{key}.")
                else:
                    found[prefix + key] = value

        add(self.model_dump(exclude={"seed": True, "training": {"save_seconds"}}), "")
        return found

    def fingerprint(self, *, seed: bool = True) -> str:
        """Return a hash of every key that decides numbers (how often to save does not), with or without the seed.

        Only what differs from the defaults is hashed, and where these have changed, from the printed ones. So a new
        key leaves the hashes of older experiments as they are.
        """
        without: dict[str, Any] = {"training": {"save_seconds"}, **({} if seed else {"seed": True})}
        values = without_printed(self.model_dump(exclude=without, exclude_defaults=True), self.model_dump())
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

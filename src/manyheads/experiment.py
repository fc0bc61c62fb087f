"""The typed configuration of an experiment, and its way from and to TOML.

The sections mirror the file: `[data]`, `[model]`, `[algorithm]`, `[graph]`, `[training]`, `[evaluate]`.
`[algorithm]` and `[graph]` are open here: the entry that `name` points at knows its own keys and checks them.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from manyheads.errors import ConfigurationError

T = TypeVar("T")
CHECKED = ConfigDict(strict=True, extra="forbid")  # of the dataclasses whose fields are keys
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
MAY_HAVE_PUBLIC = ("clients", "folder", "packed")  # sources that may bring a public part of their own


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OpenSection(BaseModel):
    """A section whose other keys belong to the entry that `name` points at, and are checked there."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str

    def options(self) -> dict[str, Any]:
        """Every key but the name."""
        return dict(self.model_extra or {})


class AlgorithmConfig(OpenSection):
    name: str = "mhd"


class GraphConfig(OpenSection):
    name: str = "complete"


class PrimaryLabels(Section):
    """Which labels are primary for whom: `random` subsets of a fixed size, or `even` shares."""

    assignment: Literal["random", "even"] = "random"
    per_client: Positive | None = None  # random: labels per client; default a quarter of all, as in the paper
    clients_per_label: Positive | None = None  # even: clients that have a label as primary; default 2

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.assignment == "even" and self.per_client is not None:
            raise ValueError('per_client goes with assignment = "random"; with "even", give clients_per_label')
        if self.assignment == "random" and self.clients_per_label is not None:
            raise ValueError('clients_per_label goes with assignment = "even"; with "random", give per_client')
        if self.assignment == "even" and self.clients_per_label is None:
            object.__setattr__(self, "clients_per_label", 2)
        return self


class SourceConfig(Section):
    """Where images come from. Which of these keys a source reads stands beside it in data/sources."""

    section: ClassVar[str] = "data.public"  # as messages call it

    source: str
    path: str | None = None
    name: str | None = None  # torchvision: the data set; huggingface: its configuration
    download: bool | None = None  # torchvision, huggingface: whether it may be fetched
    label: str | None = None  # npz: "coarse" reads coarse_train and coarse_test; huggingface: a column
    fine_label: str | None = None  # finer classes, beside the labels that are learnt
    train_split: str | None = None  # huggingface
    test_split: str | None = None
    classes: list[str] | list[int] | None = None  # only these, in this order; by name or by number

    @field_validator("classes", mode="before")
    @classmethod
    def _some_classes(cls, given: object) -> object:
        kinds = {type(name) for name in given} if isinstance(given, list) else set()
        if given is not None and (kinds not in ({str}, {int}) or len(set(given)) != len(given)):  # type: ignore[arg-type, call-overload]
            raise ValueError("must be a list of different class names, or of class numbers")
        return given


def _size(given: object) -> object:
    sides = given if isinstance(given, list) else [given, given]
    if given is not None and not (len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)):
        raise ValueError("must be a number of pixels above 0, or [height, width]")
    return given


class DataConfig(SourceConfig):
    section: ClassVar[str] = "data"

    size: int | list[int] | None = None  # every image is resized to it; default: as they are, all of one size
    fit: Literal["stretch", "crop"] = "stretch"  # what resizing does to another aspect ratio
    channels: Literal[1, 3] | None = None  # grey or colour; default: as they are
    test_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None  # of a source that has no test part
    # A part of the training samples; all of them; what the source has; or images from elsewhere, as a table.
    public: Annotated[
        Annotated[Literal["fraction", "all", "own", "none"] | None, Tag("(word)")]
        | Annotated[SourceConfig, Tag("(table)")],
        Discriminator(lambda given: "(table)" if isinstance(given, dict | SourceConfig) else "(word)"),
    ] = None
    public_fraction: Fraction = 0.1
    private_fraction: Fraction | None = None  # of all training samples; default: what the other parts leave
    validation_fraction: Fraction = 0.0
    partition: Literal["skew", "dirichlet", "fine"] = "skew"
    skew: Annotated[float, Field(ge=0.0)] = 100.0
    alpha: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 0.3
    primary_labels: PrimaryLabels = PrimaryLabels()
    samples_per_class: Positive | None = None  # a client keeps at most so many; default: all that it gets
    augment: Literal["none", "crop-flip", "resized-crop-flip"] = "crop-flip"
    public_views: Positive = 1  # of each public sample, where predictions are exchanged

    _sides = field_validator("size", mode="before")(_size)

    @model_validator(mode="after")
    def _fractions(self) -> Self:
        own = self.public is None and self.source in MAY_HAVE_PUBLIC
        left = 1.0 - self.validation_fraction - (0.0 if own else self._public_share)
        if left < -1e-9:
            raise ValueError("public_fraction and validation_fraction are together more than all training samples")
        if self.private_fraction is not None and self.private_fraction > left + 1e-9:
            raise ValueError(
                f"private_fraction = {self.private_fraction:g}: public and validation parts leave {max(0.0, left):g}"
            )
        return self

    @property
    def private_share(self) -> float:
        """`private_fraction`, or where it is not given what the other parts leave."""
        if self.private_fraction is not None:
            return self.private_fraction
        return round(max(0.0, 1.0 - self._public_share - self.validation_fraction), 12)

    @property
    def _public_share(self) -> float:
        """Of the training samples, those that are public and nobody's."""
        return self.public_fraction if self.public in (None, "fraction") else 0.0

    @field_validator("skew")
    @classmethod
    def _number(cls, skew: float) -> float:
        if math.isnan(skew):
            raise ValueError("must be a number of at least 0, or inf")
        return skew


class ModelConfig(Section):
    backbone: str | list[str] = "resnet18"  # one for all, or a list with one per client; so is the width
    stem: Literal["small", "large"] = "small"
    width: int | list[int] = 64
    weights: str | list[str] | None = None  # a safetensors file to start the backbone from; "" in a list: none
    auxiliary_heads: Count = 4
    heads_see: Literal["embedding", "feature_map"] = (
        "embedding"  # of our backbones: their last map's mean, or all of it
    )

    @field_validator("backbone", mode="before")
    @classmethod
    def _names(cls, given: object) -> object:
        if not all(isinstance(name, str) for name in (given if isinstance(given, list) else [given])):
            raise ValueError("must be a name, or a list of names with one per client")
        return given

    @field_validator("width", mode="before")
    @classmethod
    def _widths(cls, given: object) -> object:
        if not all(type(width) is int and width > 0 for width in (given if isinstance(given, list) else [given])):
            raise ValueError("must be a number of channels above 0, or a list with one per client")
        return given

    @field_validator("weights", mode="before")
    @classmethod
    def _files(cls, given: object) -> object:
        if given is not None and not all(isinstance(x, str) for x in (given if isinstance(given, list) else [given])):
            raise ValueError('must be a safetensors file, or a list of files with one per client ("": none)')
        return given

    def of(self, client: int) -> "ModelConfig":
        """The model of one client."""
        own: dict[str, Any] = {key: getattr(self, key)[client] for key in self.lists}
        own["weights"] = own.get("weights", self.weights) or None
        return self.model_copy(update=own)

    @property
    def lists(self) -> dict[str, int]:
        """The keys that hold one value per client, and how many they hold."""
        keys = ("backbone", "width", "weights")
        return {key: len(value) for key in keys if isinstance(value := getattr(self, key), list)}


class TrainingConfig(Section):
    steps: Positive = 4_000
    batch_size: Annotated[int, Field(ge=2)] = 128  # BatchNorm cannot learn from one sample
    public_batch_size: Annotated[int, Field(ge=2)] = 128
    learning_rate: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] = 0.05
    warmup_steps: Count = 200
    schedule: Literal["cosine", "constant"] = "cosine"
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    weight_decay: Annotated[float, Field(ge=0.0, le=1e6)] = 5e-4
    log_every: Positive = 50  # a window is at most this long: losses are recorded and a stop is heeded at its end
    save_seconds: NonNegative = 60.0


class EvaluateConfig(Section):
    every: Positive = 1_000
    probe: bool = False  # at the end: how much a fresh linear head on each frozen embedding could know


class Experiment(Section):
    """All that decides the numbers of a run. `Experiment.load` reads one; `str(experiment)` is its TOML."""

    seed: Annotated[int, Field(ge=0)] = 0
    clients: Positive
    groups: list[list[int]] = []  # clients that average among themselves and are one node of the graph
    data: DataConfig
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    graph: GraphConfig = GraphConfig()
    training: TrainingConfig = TrainingConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigurationError(explain(error, known=_known_keys(type(self)))) from None

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Experiment":
        """Read a TOML file; each override is `key.path=value` with the value written as in TOML."""
        return cls.from_toml(read_text(Path(path)), str(path), overrides)

    @classmethod
    def from_toml(cls, text: str, name: str = "experiment", overrides: Iterable[str] = ()) -> "Experiment":
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{name}: not valid TOML: {error}") from None
        # A new name comes first: it lets go of the keys that belonged to the old one.
        for override in sorted(overrides, key=lambda text: not _names_an_entry(text)):
            _override(values, override)
        return cls(**values)

    def with_values(self, **values: Any) -> "Experiment":
        """The same experiment with some keys replaced; sections are given as dicts and merged key by key.

        >>> digits = Experiment(clients=8, data={"source": "digits"})
        >>> digits.with_values(seed=1, training={"steps": 100}).training.steps
        100
        """
        merged = self.model_dump()
        for key, value in values.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
                changed_name = key != "data" and "name" in value and value["name"] != merged[key].get("name")
                merged[key] = dict(value) if changed_name else {**merged[key], **value}
            else:
                merged[key] = value
        return Experiment(**_without_none(merged))

    def __str__(self) -> str:
        return tomli_w.dumps(_without_none(self.model_dump()))

    def keys(self) -> dict[str, object]:
        """Every key that decides numbers but for the seed, with its section: `training.steps`."""
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
        """A hash of every key that decides numbers (how often to save does not), with or without the seed.

        Of what differs from defaults: a new key changes no hash of experiments without it.
        """
        without: dict[str, Any] = {"training": {"save_seconds"}, **({} if seed else {"seed": True})}
        values = self.model_dump(exclude=without, exclude_defaults=True)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_text(path: Path) -> str:
    """The text of a configuration file, or one line that says why there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except IsADirectoryError:
        inside = path / "experiment.toml"
        hint = f"its experiment is {inside}; go on with it by: manyheads resume {path}" if inside.exists() else ""
        raise ConfigurationError(f"{path}: is a folder; {hint or 'give a TOML file'}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not a text file") from None


def build(kind: type[T], values: Mapping[str, Any], section: str) -> T:
    """Make a checked value of the dataclass `kind` from the keys of a section; errors name the key as the file does."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    known = {section: sorted(field.name for field in fields)}
    for field in fields:
        if isinstance(field.type, type) and issubclass(field.type, BaseModel):
            known |= _known_keys(field.type, f"{section}.{field.name}")
    try:
        return kind(**values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, known, section)) from None
    except TypeError as error:  # a plain dataclass of somebody else's
        raise ConfigurationError(f"{section}: {error}; known: {', '.join(known[section])}") from None


def nearest(given: str, allowed: Iterable[str]) -> str:
    """`did you mean ...?` and, where it is short, the list of what is allowed."""
    allowed = sorted(allowed)
    known = f"known: {', '.join(allowed)}" if allowed else "there are no keys here"
    close = difflib.get_close_matches(given.lower(), allowed, n=1)
    if not close:
        return known
    return f'did you mean "{close[0]}"?' + (f" ({known})" if len(allowed) <= 8 else "")


def explain(error: ValidationError, known: Mapping[str, list[str]], section: str = "") -> str:
    """One line for the first problem: the key, what was given, what is allowed."""
    unknown = ("extra_forbidden", "unexpected_keyword_argument")
    missing = ("missing", "missing_argument")
    # An unknown key is often the reason why another one is missing.
    order = {kind: rank for rank, kinds in ((0, unknown), (2, missing)) for kind in kinds}
    problems = sorted(error.errors(include_url=False), key=lambda problem: order.get(problem["type"], 1))
    first = problems[0]
    path = [section] if section else []
    path += [str(part) for part in first["loc"] if not str(part).startswith("(")]  # not the tags of a choice
    key, more = ".".join(path), f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] in unknown:
        elsewhere = [f"{at}.{path[-1]}" for at, keys in known.items() if at and path[-1] in keys]
        hint = f"did you mean {elsewhere[0]}?" if elsewhere else nearest(path[-1], known.get(".".join(path[:-1]), []))
        return f"{key}: unknown key; {hint}{more}"
    if first["type"] == "model_type":
        example = f"[{key}] with name = {_shown(first['input'])}" if key in ("graph", "algorithm") else f"[{key}]"
        return f"{key} = {_shown(first['input'])}: is a section; write {example}{more}"
    if first["type"] in missing:
        hint = 'say where samples come from: source = "digits", or "folder" with a path' if path[0] == "data" else ""
        return f"{'data.source' if key == 'data' else key}: missing; {hint or 'give a value'}{more}"
    message = str(first.get("ctx", {}).get("error", first["msg"]))
    message = message[:1].lower() + message[1:]
    if isinstance(first["input"], Mapping | BaseModel) or type(first["input"]).__name__ == "ArgsKwargs":
        return f"{key}: {message}{more}" if key else f"{message}{more}"
    return f"{key} = {_shown(first['input'])}: {message}{more}"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _known_keys(kind: type[BaseModel], prefix: str = "") -> dict[str, list[str]]:
    """For each section, by its dotted path, the keys that it knows."""
    keys = {prefix: sorted(kind.model_fields)}
    for name, field in kind.model_fields.items():
        for inner in _sections(field.annotation):
            keys |= _known_keys(inner, f"{prefix}.{name}".strip("."))
    return keys


def _sections(annotation: object) -> list[type[BaseModel]]:
    """The sections that a field may hold: one, or one of several kinds of value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]


def _override(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigurationError(f"--set {override}: write it as key.path=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        value = text.strip()  # a bare word is a string: --set graph.name=cycle
        if value[:1] in ("{", "[", '"', "'"):
            raise ConfigurationError(f"--set {override}: the value is not valid TOML: {error}") from None
    *sections, key = path.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"--set {override}: {section} is not a section")
    if _names_an_entry(override) and values.get(key) not in (None, value):
        values.clear()
    values[key] = value


def _names_an_entry(override: str) -> bool:
    path = override.partition("=")[0].strip()
    return path.endswith(".assignment") or (path.endswith(".name") and not path.startswith("data."))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {k: _without_none(v) if isinstance(v, dict) else v for k, v in values.items() if v is not None}

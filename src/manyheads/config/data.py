"""`[data]`: where samples come from, and how they are dealt out."""

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from manyheads.config.types import MAX_PIXELS, Fraction, Positive, Section, Views

LARGEST = 1e9  # sums of larger numbers over clients are not exact
MAY_HAVE_PUBLIC = ("clients", "folder", "packed")  # sources that may bring a public part of their own


def _number_of_channels(given: object) -> object:
    if type(given) is not int:  # true equals 1
        raise ValueError("input should be 1 or 3")
    return given


Channels = Annotated[Literal[1, 3], BeforeValidator(_number_of_channels)]


class PrimaryLabels(Section):
    """The rule that deals out primary labels: `random` subsets of a fixed size, or `even` shares."""

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
    """The origin of images. Each source in data/sources says which of these keys it reads."""

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
    known = all(type(side) is int and 0 < side <= MAX_PIXELS for side in sides)
    if given is not None and not (known and len(sides) == 2):
        raise ValueError(f"must be a number of pixels from 1 to {MAX_PIXELS:,}, or [height, width]")
    return given


class DataConfig(SourceConfig):
    section: ClassVar[str] = "data"

    size: int | list[int] | None = None  # every image is resized to it; default: as they are, all of one size
    fit: Literal["stretch", "crop"] = "stretch"  # what resizing does to another aspect ratio
    channels: Channels | None = None  # grey or colour; default: as they are
    test_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None  # of a source that has no test part
    # A fraction of the training samples, all of them, the source's own public part, or images from elsewhere (a table).
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
    alpha: Annotated[float, Field(gt=0.0, le=LARGEST)] = 0.3
    primary_labels: PrimaryLabels = PrimaryLabels()
    samples_per_class: Positive | None = None  # a client keeps at most this many; default: all that it gets
    augment: Literal["none", "crop-flip", "resized-crop-flip"] = "crop-flip"
    public_views: Views = 1  # of each public sample, where predictions are exchanged

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
        """Return `private_fraction` or, if it is not given, what the other parts leave."""
        if self.private_fraction is not None:
            return self.private_fraction
        return round(max(0.0, 1.0 - self._public_share - self.validation_fraction), 12)

    @property
    def _public_share(self) -> float:
        """Return the share of the training samples that are public and belong to no client."""
        return self.public_fraction if self.public in (None, "fraction") else 0.0

    @field_validator("skew")
    @classmethod
    def _number(cls, skew: float) -> float:
        if math.isnan(skew) or LARGEST < skew < math.inf:
            raise ValueError(f"must be a number from 0 to {LARGEST:g}, or inf")
        return skew

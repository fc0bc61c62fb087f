"""The types of values and sections that a configuration consists of."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

T = TypeVar("T")
CHECKED = ConfigDict(strict=True, extra="forbid")  # for dataclasses whose fields are keys
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
# More than anybody needs, yet few enough that memory and time last until a mistake is reported.
Clients = Annotated[int, Field(gt=0, le=100_000)]
Steps = Annotated[int, Field(gt=0, le=10_000_000)]
Heads = Annotated[int, Field(ge=0, le=1_000)]
Entries = Annotated[int, Field(gt=0, le=100_000)]
Views = Annotated[int, Field(gt=0, le=65_536)]  # the number of a view travels as 16 bits
MAX_PIXELS, MAX_CHANNELS = 16_384, 65_536  # along a side of an image; in a model's width
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Precision = Literal["float32", "float16", "uint8"]
Rest = Literal["spread", "renormalise"]
Select = Literal["most_confident", "random", "all"]
Weighting = Literal["samples", "uniform"]


class Section(BaseModel):
    """A section of the configuration: frozen, and strict about types and keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OpenSection(BaseModel):
    """A section whose other keys belong to the entry that `name` names, and are checked there."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str

    def options(self) -> dict[str, Any]:
        """Return every key but the name."""
        return dict(self.model_extra or {})

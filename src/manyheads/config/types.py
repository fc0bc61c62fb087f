"""The types of values and sections that a configuration consists of."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

T = TypeVar("T")


def _checked_pull(given: object) -> object:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if given != "sum" and not (number and 0.0 <= given <= 1e6):  # type: ignore[operator]
        raise ValueError(
            'must be a number from 0 to 1,000,000, or "sum": nu_aux times the number of heads, as in Eq. 5'
        )
    return float(given) if isinstance(given, int) else given


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
Ask = Literal["drawn", "surest"]
Select = Literal["most_confident", "mixture", "random", "all", "oracle"]
Pull = Annotated[float | Literal["sum"], BeforeValidator(_checked_pull)]
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

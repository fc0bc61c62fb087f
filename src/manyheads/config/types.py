"""Kinds of value and of section that a configuration is made of."""

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

T = TypeVar("T")
CHECKED = ConfigDict(strict=True, extra="forbid")  # of the dataclasses whose fields are keys
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
# More than anybody needs, and few enough that nothing runs out of memory, or of a lifetime, before it says so.
Clients = Annotated[int, Field(gt=0, le=100_000)]
Steps = Annotated[int, Field(gt=0, le=10_000_000)]
Heads = Annotated[int, Field(ge=0, le=1_000)]
Entries = Annotated[int, Field(gt=0, le=100_000)]
Views = Annotated[int, Field(gt=0, le=65_536)]  # their numbers travel as 16 bits
MOST_PIXELS, MOST_CHANNELS = 16_384, 65_536  # of a side; of a model's width
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OpenSection(BaseModel):
    """A section whose other keys belong to the entry that `name` points at, and are checked there."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str

    def options(self) -> dict[str, Any]:
        """Every key but the name."""
        return dict(self.model_extra or {})

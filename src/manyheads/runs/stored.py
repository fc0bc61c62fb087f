"""The types of what a run leaves as JSON: the same classes check it when it is written and when it is read."""

from collections.abc import Iterator, KeysView
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from manyheads.errors import RunError
from manyheads.printable import shortened

FORMAT = 1  # of metrics.jsonl, summary.json and relations.json; older.py reads files from before there was a number

Count = Annotated[int, Field(ge=0, lt=2**63)]
Width = Annotated[int, Field(ge=1, le=2**24)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
# The weights of a weighted mean add up to one but for their last bits.
Accuracy = Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)]
ByHead = Annotated[list[Accuracy], Field(min_length=1)]
Hops = Annotated[str, Field(pattern=r"^([0-9]{1,9}|none)$")]
Collapse = Annotated[list[Count], Field(min_length=3, max_length=3)]  # client, head, class


class Stored(BaseModel):
    """A part of such a file. Its values are attributes and can also be read like those of a dict:

    >>> class Point(Stored):
    ...     x: int
    >>> point = Point(x=3)
    >>> point.x, point["x"], "y" in point
    (3, 3, False)
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    def __getitem__(self, key: str) -> Any:
        if key not in type(self).model_fields:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # a model of pydantic's gives pairs
        return iter(type(self).model_fields)

    def keys(self) -> KeysView[str]:
        return type(self).model_fields.keys()


S = TypeVar("S", bound=Stored)
T = TypeVar("T")


def for_private_task(plain: list[T], with_prior: list[T] | None) -> list[T]:
    """Return accuracies at the private task: of balanced heads with the client's prior, of others as they are."""
    return plain if with_prior is None else with_prior


def parse_json(content: bytes, where: object) -> dict[str, Any]:
    """Parse a JSON object whose format this version of manyheads reads; `where` is named in errors."""
    try:
        values = from_json(content, allow_inf_nan=False)
    except ValueError as error:  # also for numbers of thousands of digits, and for nesting that is too deep
        raise RunError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise RunError(f"{where}: not what a run writes (it is not a JSON object)")
    number = values.get("format", 0)
    if type(number) is not int or not 0 <= number < 2**31:
        raise RunError(f"{where}: not what a run writes (format is not a version number)")
    if number > FORMAT:
        raise RunError(
            f"{where}: has format {number}, this version of manyheads reads format {FORMAT}; use a newer manyheads"
        )
    return values


def validated(kind: type[S], values: dict[str, Any], where: object) -> S:
    """Make a typed object of parsed values."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RunError(f"{where}: not what a run writes ({problem_text(error)})") from None


def problem_text(error: ValidationError) -> str:
    """Return the first problem in one short line: where it is, and what belongs there."""
    first = error.errors(include_url=False, include_input=False)[0]
    place, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return shortened(f"{place}: {said[:1].lower()}{said[1:]}" if place else said, 160)


def check_shape(name: str, table: list[Any], *shape: int) -> None:
    """Raise ValueError unless a nested list has these lengths, axis by axis."""
    if len(table) != shape[0]:
        raise ValueError(f"{name} has {len(table)} entries where there should be {shape[0]}")
    for row in table if len(shape) > 1 else ():
        check_shape(name, row, *shape[1:])


def check_below(name: str, numbers: list[int], end: int) -> None:
    """Raise ValueError unless all of these numbers are below `end`."""
    if numbers and max(numbers) >= end:
        raise ValueError(f"{name} names number {max(numbers)} of {end}")

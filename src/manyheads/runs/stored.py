"""What a run leaves as JSON is typed, and checked by the same classes when it is made and when it is read."""

from collections.abc import Iterator, KeysView
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from manyheads.errors import RunError

FORMAT = 1  # of metrics.jsonl, summary.json and relations.json; older.py reads what was written before it had a number

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
    """A part of such a file. Its values are attributes, and can be read like those of a dict:

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


def parse(content: bytes, where: object) -> dict[str, Any]:
    """Read an object of JSON that this version of manyheads may understand; `where` is named in errors."""
    try:
        values = from_json(content, allow_inf_nan=False)
    except ValueError as error:  # also numbers of thousands of digits, and what is nested too deeply
        raise RunError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise RunError(f"{where}: not what a run writes (it is no JSON object)")
    number = values.get("format", 0)
    if type(number) is not int or not 0 <= number < 2**31:
        raise RunError(f"{where}: not what a run writes (format is no version number)")
    if number > FORMAT:
        raise RunError(
            f"{where}: has format {number}, and this version of manyheads reads format {FORMAT}; take a newer manyheads"
        )
    return values


def check(kind: type[S], values: dict[str, Any], where: object) -> S:
    """Make a typed object of what was parsed."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RunError(f"{where}: not what a run writes ({problem_text(error)})") from None


def problem_text(error: ValidationError) -> str:
    """Return the first problem in a few words on one line: where it is, and what belongs there."""
    first = error.errors(include_url=False, include_input=False)[0]
    place, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return _printable(f"{place}: {said[:1].lower()}{said[1:]}" if place else said)


def _printable(text: str, most: int = 160) -> str:
    """What stands in a file of somebody else's is not sent to a terminal as it is."""
    shown = text.encode("unicode_escape").decode()
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def check_shape(name: str, table: list[Any], *shape: int) -> None:
    """Raise ValueError unless a nested list has these lengths, axis by axis."""
    if len(table) != shape[0]:
        raise ValueError(f"{name} has {len(table)} entries where there should be {shape[0]}")
    for row in table if len(shape) > 1 else ():
        check_shape(name, row, *shape[1:])


def check_below(name: str, numbers: list[int], end: int) -> None:
    """Raise ValueError unless all of these are numbers of something that there are `end` of."""
    if numbers and max(numbers) >= end:
        raise ValueError(f"{name} names number {max(numbers)} of {end}")

"""What must not be read on the host in a captured step: whoever tries is told so."""

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray


class NotOnHost(Exception):
    """Something was read on the host that a captured step knows on the device only."""


class NoPlan(Mapping[str, NDArray[Any]]):
    """In the place of a plan."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        raise NotOnHost(f'losses reads batch.plan["{name}"]; batch.number, batch.array and batch.phase can be captured')

    def __contains__(self, name: object) -> bool:
        raise NotOnHost(f'losses looks for "{name}" in batch.plan; batch.array is None where there is none')

    def __iter__(self) -> Iterator[str]:
        raise NotOnHost("losses goes through batch.plan; batch.number, batch.array and batch.phase can be captured")

    def __len__(self) -> int:
        raise NotOnHost("losses asks how long batch.plan is; batch.number, batch.array and batch.phase can be captured")


class NoStep:
    """In the place of a step's number."""


def _refuse(*_: Any) -> Any:
    raise NotOnHost("losses reads `step`; what changes from step to step belongs into the algorithm's plan")


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "floordiv",
    "mod",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "int",
    "index",
    "float",
    "bool",
    "hash",
]:
    setattr(NoStep, f"__{_name}__", _refuse)

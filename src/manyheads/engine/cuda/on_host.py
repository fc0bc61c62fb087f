"""What must not be read on the host in a captured step: whoever tries is told so."""

from typing import Any

from manyheads.client.plan import PLAN_FIELDS, WindowPlan


class NotOnHost(Exception):
    """Something was read on the host that a captured step knows on the device only."""


class NoPlan(WindowPlan):
    """In the place of a plan."""

    def __getattribute__(self, name: str) -> Any:
        if name in (*PLAN_FIELDS, "arrays"):
            raise NotOnHost(
                f"losses reads batch.plan.{name}; batch.number, batch.array and batch.phase can be captured"
            )
        return super().__getattribute__(name)


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

"""Stand-ins for what a captured step must not read on the host: reading them raises an error that says so."""

from typing import Any

from manyheads.client.plan import PLAN_FIELDS, WindowPlan


class NotOnHost(Exception):
    """Something was read on the host that a captured step has on the device only."""


class NoPlan(WindowPlan):
    """A stand-in for a plan."""

    def __getattribute__(self, name: str) -> Any:
        if name in (*PLAN_FIELDS, "arrays"):
            raise NotOnHost(
                f"losses reads batch.plan.{name}; batch.number, batch.array and batch.phase can be captured"
            )
        return super().__getattribute__(name)


class NoStep:
    """A stand-in for the number of a step."""


def _refuse(*_: Any) -> Any:
    raise NotOnHost("losses reads `step`; what changes from step to step belongs in the algorithm's plan")


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

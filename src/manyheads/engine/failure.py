"""Errors that travel from another process to this one."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from manyheads.errors import ManyheadsError
from manyheads.memory import enough_memory


@dataclass(frozen=True)
class RemoteError:
    """An error of another process, in a form that travels."""

    kind: type[ManyheadsError] | None  # one of ours, whose text says everything
    text: str
    where: str  # its traceback

    def error(self, who: str) -> Exception:
        if self.kind is None:
            error: Exception = RuntimeError(f"{who}: {self.text}")
            error.__cause__ = RemoteTraceback(self.where)
            return error
        error = self.kind.__new__(self.kind)
        error.args = (self.text,)
        return error


class RemoteTraceback(Exception):
    """The traceback of an error in another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def attempted(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the error in which it ended."""
    try:
        with enough_memory():
            return call()
    except ManyheadsError as error:
        return RemoteError(type(error), str(error), "")
    except Exception as error:
        return RemoteError(None, f"{type(error).__name__}: {error}", traceback.format_exc())

"""Transports carry requests and answers between clients. Every exchange goes through this one protocol.

request  = Request(asker, owner, step, rows, keep)
answer   = owner.answer(request)           encoded once; the sender never decodes
snapshot = origin.accept(request, answer)  checked once, by the asker; anything else is refused
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from manyheads.errors import SnapshotError
from manyheads.exchange.received import UnencodedTable
from manyheads.exchange.request import Request
from manyheads.exchange.weights import WeightsSnapshot

# A message that may travel; if weights are exchanged or nothing leaves a device, an object that is read as it is.
Answer = bytes | WeightsSnapshot | UnencodedTable


class Transport(Protocol):
    """A way to carry requests to owners, and answers back."""

    def serve(self, owner: int, answer: Callable[[Request], Answer]) -> None:
        """Let others ask `owner`: requests to it go to `answer`."""

    def ask(self, request: Request) -> Answer:
        """Return the owner's answer, or raise a SnapshotError if there is none."""


class InMemoryTransport:
    """A transport between clients of one process: a request is a call."""

    def __init__(self) -> None:
        self._owners: dict[int, Callable[[Request], Answer]] = {}

    def serve(self, owner: int, answer: Callable[[Request], Answer]) -> None:
        self._owners[owner] = answer

    def ask(self, request: Request) -> Answer:
        if request.owner not in self._owners:
            raise SnapshotError(f"client {request.owner}: nobody answers for it here")
        return self._owners[request.owner](request)


TRANSPORTS: Mapping[str, Callable[[], Transport]] = {"memory": InMemoryTransport}

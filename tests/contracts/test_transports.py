"""The contract of every transport: requests reach their owner and no other, answers come back as they are."""

import numpy as np
import pytest

from manyheads.errors import SnapshotError
from manyheads.exchange.request import PublicRows, Request
from manyheads.exchange.transport import TRANSPORTS, Answer

ROWS = PublicRows(((np.arange(9), 0),))


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_question_reaches_its_owner(name: str) -> None:
    transport, carried = TRANSPORTS[name](), list[Request]()

    def answering(owner: int) -> None:
        def answer(request: Request) -> Answer:
            carried.append(request)
            return bytes([owner]) * request.step

        transport.serve(owner, answer)

    answering(0)
    answering(3)
    asked = [Request(1, 3, 4, ROWS, keep=(4,)), Request(1, 0, 2, None), Request(3, 0, 300_000, ROWS)]
    assert [transport.ask(request) for request in asked] == [b"\3" * 4, b"\0" * 2, b"\0" * 300_000]
    assert [(request.asker, request.owner, request.step, request.keep) for request in carried] == [
        (1, 3, 4, (4,)),
        (1, 0, 2, ()),
        (3, 0, 300_000, ()),
    ]
    assert [None if request.rows is None else request.rows.digest for request in carried] == [
        ROWS.digest,
        None,
        ROWS.digest,
    ]


@pytest.mark.parametrize("name", TRANSPORTS)
def test_nobody_answers_for_another(name: str) -> None:
    transport = TRANSPORTS[name]()
    transport.serve(0, lambda request: b"from 0")
    with pytest.raises(SnapshotError, match="client 1: nobody answers for it"):
        transport.ask(Request(0, 1, 0, None))


@pytest.mark.parametrize("name", TRANSPORTS)
def test_an_owner_that_cannot_answer_says_why(name: str) -> None:
    transport = TRANSPORTS[name]()

    def refuse(request: Request) -> Answer:
        raise SnapshotError("client 0: no longer keeps its snapshot of step 3")

    transport.serve(0, refuse)
    with pytest.raises(SnapshotError, match="no longer keeps its snapshot of step 3"):
        transport.ask(Request(1, 0, 3, None))

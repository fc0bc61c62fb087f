"""The messages between workers in an exchange hold no weights, and about as many bytes as are counted."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from manyheads import Experiment
from manyheads.engine.options import EngineOptions
from manyheads.engine.parallel import ParallelEngine
from manyheads.engine.pickling import packed
from manyheads.engine.plain import PlainTrainer
from manyheads.engine.ray.actor import RayWorker
from manyheads.engine.remote import RemoteWorker
from manyheads.setup.build import Ensemble, assemble
from manyheads.training.loop import windows

EXCHANGE = ("collect", "answer", "apply", "ask_again", "refresh")
ROWS = {"augment": "crop-flip", "public_views": 50}
KINDS: dict[str, dict[str, Any]] = {
    "rows": {"data": ROWS, "algorithm": {"exchange": "predictions", "pool_every": 10}},
    "whole tables": {"data": {"public_fraction": 0.3}, "algorithm": {"exchange": "predictions", "pool_every": 10}},
    "rows, density": {
        "data": ROWS,
        "algorithm": {"exchange": "predictions", "pool_every": 10, "confidence": "density"},
    },
    "fedmd": {
        "algorithm": {"name": "fedmd", "first_private_steps": 10, "digest_steps": 5, "revisit_steps": 5},
    },
}


def experiment(tiny: Experiment, kind: str) -> Experiment:
    return tiny.with_values(training={"public_batch_size": 64}).with_values(**KINDS[kind])


class Watched(ParallelEngine):
    """Notes every exchange message, and how many bytes go down each pipe in one."""

    def __init__(self, *arguments: Any) -> None:
        self.messages: list[bytes] = []
        self.sizes: dict[str, int] = dict.fromkeys(EXCHANGE, 0)
        super().__init__(*arguments)

    def ask(self, method: str, arguments: Any, progress: Any = None) -> list[Any]:
        found = super().ask(method, arguments, progress)
        if method in EXCHANGE:
            for given in arguments.values():
                self._note(method, given)
            self._note(method, found, count=False)
        return found

    def _note(self, method: str, values: Any, *, count: bool = True) -> None:
        body, buffers = packed(values)
        self.messages.append(body + b"".join(buffer.raw().tobytes() for buffer in buffers))
        self.sizes[method] += len(self.messages[-1]) if count else 0


@contextlib.contextmanager
def trained(wanted: Experiment) -> Iterator[tuple[Watched, Ensemble, list[np.ndarray[Any, Any]]]]:
    """Return every exchange of a run with a worker for each client, and all weights that a client had at one."""
    ensemble, seen = assemble(wanted), list[np.ndarray[Any, Any]]()
    with contextlib.closing(Watched(ensemble, EngineOptions(workers=wanted.clients))) as engine:
        edges = ensemble.resolved.exchange_steps
        engine.exchange(0)
        for window in windows(0, wanted.training.steps, edges):
            engine.train(window, lambda _: None)
            seen += [state.tensors["values"].numpy().copy() for state in engine.states((), pools=False)[0]]
            engine.exchange(window.stop)
        engine.fetch_clients()
        yield engine, ensemble, seen
    assert multiprocessing.active_children() == []


def pieces(values: "np.ndarray[Any, Any]") -> list[bytes]:
    """Runs of eight numbers: no two models share one by chance."""
    return [values[at : at + 8].tobytes() for at in range(0, len(values) - 8, 41) if len(set(values[at : at + 8])) == 8]


@pytest.mark.parametrize("kind", KINDS)
def test_no_weights_are_in_a_message_where_predictions_are_exchanged(tiny: Experiment, kind: str) -> None:
    with trained(experiment(tiny, kind)) as (engine, _, seen):
        assert len(engine.messages) > 6
        everything = b"".join(engine.messages)
        assert not any(piece in everything for values in seen for piece in pieces(values))


def test_they_would_be_found(tiny: Experiment) -> None:
    with trained(tiny) as (engine, _, seen):
        everything = b"".join(engine.messages)
        assert any(piece in everything for piece in pieces(seen[0]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fedmd"])
def test_what_crosses_is_what_is_counted(tiny: Experiment, kind: str) -> None:
    """Requests and answers together, each answer once for each worker that receives it."""
    with trained(experiment(tiny, kind)) as (engine, ensemble, _):
        counted = sum(client.bytes_received for client in ensemble.clients)
        assert counted > 50_000
        assert engine.sizes["answer"] + engine.sizes["apply"] == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_what_any_worker_hands_out_holds_no_weights(
    tiny: Experiment, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of Ray count, too: its object store takes what `send` returns."""

    class Store:
        @staticmethod
        def put(value: Any) -> Any:
            return value

    monkeypatch.setattr("manyheads.engine.ray.actor.import_ray", lambda: Store)
    for worker_class in (RemoteWorker, RayWorker):
        ensemble = assemble(experiment(tiny, kind))
        step = min(ensemble.resolved.exchange_steps)
        worker = worker_class(ensemble, PlainTrainer())
        requests = worker.collect(step)
        assert requests
        sent = worker.answer(requests, {request.key for request in requests})
        body, buffers = packed(list(sent.values()))
        message = body + b"".join(buffer.raw().tobytes() for buffer in buffers)
        values = [client.state.values.numpy() for client in ensemble.clients]
        assert not any(piece in message for own in values for piece in pieces(own))


def test_nothing_is_decoded_by_its_sender(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("an owner reads a message")

    ensemble = assemble(experiment(tiny, "rows"))
    worker = RemoteWorker(ensemble, PlainTrainer())
    requests = worker.collect(0)
    assert requests
    monkeypatch.setattr("manyheads.exchange.message.decode", refuse)
    monkeypatch.setattr("manyheads.exchange.received.decode", refuse)
    assert worker.answer(requests, {request.key for request in requests})

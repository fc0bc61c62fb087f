"""Results that were never run, and runs that need no other process."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from manyheads.studies.paper.measures import TableResults
from manyheads.studies.paper.results import CellResult, ClientAccuracies


def make_result(shared: float, seed: int = 0, heads: int = 1, **values: object) -> CellResult:
    """Two clients; the last head has this shared accuracy, each one before a point less."""
    by_head = [shared - 0.01 * (heads - 1 - head) for head in range(heads)]
    private = [0.9] * heads
    client = ClientAccuracies(backbone="cnn", width=16, private_accuracy=private, shared_accuracy=by_head)
    given: dict[str, object] = {
        "cell": "heads s = 100", "scale": "digits", "seed": seed, "key": "0", "code": "0", "experiment": {},
        "data": None, "version": "0", "torch": "0", "hardware": "a laptop", "engine": "plain", "precision": "float32",
        "seconds": 60.0, "private_accuracy": private, "shared_accuracy": by_head, "validation": None,
        "by_hop": {"0": by_head, "1": by_head}, "after": {}, "probe": None, "bytes_received": [1_000_000, 3_000_000],
        "collapsed": [], "clients": [client, client],
    }  # fmt: skip
    return CellResult.model_validate(given | values)


def results_with(cells: Mapping[str, Sequence[float]], heads: int = 1, doubt: float = 0.0) -> TableResults:
    """Shared accuracies of the last head, by cell and seed."""
    return TableResults(
        {cell: {seed: make_result(value, seed, heads) for seed, value in enumerate(by)} for cell, by in cells.items()},
        doubt,
    )


class InThisProcess(Executor):
    """Runs a job at once, in this process: to start others takes longer than most tests."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future

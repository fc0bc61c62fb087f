"""The contract of algorithms that exchange tables of predictions: no client reads a row that it was not sent."""

from pathlib import Path
from typing import Any

import pytest

from manyheads import resume, train
from manyheads.algorithms import ALGORITHMS
from manyheads.data.batches import Rows
from manyheads.errors import Interrupted
from manyheads.exchange.received import PredictionsSnapshot
from manyheads.outputs import Outputs
from manyheads.setup.build import assemble
from tests.contracts import ALGORITHM_KNOBS, experiment, mhd
from tests.runs.conftest import StopAt

VIEWS = {"augment": "crop-flip", "public_views": 3}
TABLES: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": {"name": name, **knobs}, "data": VIEWS} for name, knobs in ALGORITHM_KNOBS.items()},
    "mhd": {"algorithm": mhd(exchange="predictions", targets_per_step=2), "data": VIEWS},
    "mhd, all rows": {"algorithm": mhd(exchange="predictions", pool_every=6), "data": {"public_fraction": 0.06}},
    "mhd, several epochs": {"algorithm": mhd(exchange="predictions"), "data": {**VIEWS, "public_fraction": 0.05}},
    "mhd, groups": {
        "clients": 4,
        "groups": [[0, 1], [2, 3]],
        "algorithm": mhd(exchange="predictions", average_every=3),
        "data": VIEWS,
    },
    "mhd, phases": {
        "algorithm": mhd(exchange="predictions"),
        "graph": {"name": "phases", "phases": [{"steps": 6, "name": "cycle"}, {"name": "complete"}]},
        "data": {"public_fraction": 0.1, **VIEWS},
    },
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return, for each time that a table is read, whether it holds every row that is read."""
    found, outputs = [], PredictionsSnapshot.outputs

    def watched(self: PredictionsSnapshot, rows: Rows) -> Outputs:
        answer = outputs(self, rows)
        found.append(answer.known_B is None)
        return answer

    monkeypatch.setattr(PredictionsSnapshot, "outputs", watched)
    return found


@pytest.mark.parametrize("case", TABLES)
def test_only_rows_that_were_sent_are_read(case: str, asked: list[bool], tmp_path: Path) -> None:
    """This is true in training, in counting who taught whom, and after resuming."""
    given, folder = experiment("mhd", **TABLES[case]), tmp_path / "run"
    assert given.algorithm.name in ALGORITHMS
    with pytest.raises(Interrupted):
        train(given, folder, observer=StopAt(25))
    resume(folder)
    assert all(asked)
    tables = assemble(given).clients[0].schema is not None
    assert bool(asked) == tables


def test_both_kinds_of_tables_are_here() -> None:
    schemas = {name: assemble(experiment("mhd", **values)).clients[0].schema for name, values in TABLES.items()}
    whole = {name: made.whole for name, made in schemas.items() if made is not None}
    assert not whole["mhd"]
    assert not whole["mhd, several epochs"]
    assert whole["mhd, all rows"]
    assert whole["mhd, phases"]

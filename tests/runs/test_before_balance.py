"""Runs from before balance, pull, mixtures and `fit_every`: they go on as they began, and keep their hashes.

`before_balance` holds two runs of 12 steps that commit cd5c480 stopped after 6, and what it found in whole ones.
"""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from manyheads import Experiment, resume, train
from manyheads.config.as_printed import ADDED, as_printed
from manyheads.errors import Interrupted
from manyheads.files import digest
from manyheads.rounding import rounding
from manyheads.runs.manifest import Manifest
from manyheads.runs.read import read_experiment, read_summary
from tests.runs.conftest import StopAt
from tests.runs.test_kill import outcome

OLD = Path(__file__).parent / "before_balance"


def test_a_run_without_these_keys_ends_as_the_printed_one(tiny: Experiment, tmp_path: Path) -> None:
    printed = tiny.with_values(**as_printed()).with_values(algorithm={"pool_size": 3, "pool_every": 4})
    train(printed, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(printed, tmp_path / "run", observer=StopAt(31))
    file, manifest = tmp_path / "run" / "experiment.toml", tmp_path / "run" / "checkpoints" / "manifest.json"
    written = tomllib.loads(file.read_text())
    for section, keys in ADDED.items():
        for key in keys:
            del written[section][key]
    file.write_text(tomli_w.dumps(written))
    del written["training"]["save_seconds"]
    of_then = digest(json.dumps(written, sort_keys=True).encode())
    manifest.write_text(Manifest.unseal(manifest).model_copy(update={"experiment": of_then}).seal())

    assert read_experiment(tmp_path / "run") == read_experiment(tmp_path / "whole")
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["weights", "predictions"])
def test_a_run_that_was_begun_then_ends_as_it_would_have_then(kind: str, tmp_path: Path) -> None:
    run = Path(shutil.copytree(OLD / kind, tmp_path / "run"))
    assert not any(
        key in (run / "experiment.toml").read_text() for key in ("balance", "pull", "sharp", "remember", "fit_every")
    )
    resume(run)
    expected: dict[str, Any] = json.loads((OLD / f"{kind}.json").read_text())
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [event for event in found if event["event"] in ("losses", "evaluation")]
    assert [(event["event"], event["step"]) for event in found] == [
        (event["event"], event["step"]) for event in expected["events"]
    ]
    exact = expected["made_with"] == {"torch": torch.__version__.partition("+")[0], "rounding": rounding()}
    for ours, theirs in zip(found, expected["events"], strict=True):
        for key in theirs.keys() & {"losses", "private_accuracy", "shared_accuracy"}:
            if exact:
                assert ours[key] == theirs[key]
            elif key == "losses":
                assert ours[key].keys() == theirs[key].keys()
                for term, by_client in theirs[key].items():
                    assert ours[key][term] == pytest.approx(by_client, rel=1e-2)
            else:
                torch.testing.assert_close(torch.tensor(ours[key]), torch.tensor(theirs[key]), rtol=1e-2, atol=1e-2)
    summary = read_summary(run)
    assert summary.private_with_prior is None
    assert summary.steps == 12

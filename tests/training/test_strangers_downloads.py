"""Data that a run folder would fetch: for one's own run, and for a stranger's."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads import Experiment, RunError, resume, train
from manyheads.cli.commands import app
from manyheads.config.data import SourceConfig
from manyheads.data.listing import SourceListing
from manyheads.data.sources import SOURCES, Source
from manyheads.provenance import STATE_VARIABLE
from manyheads.studies.reevaluate import reevaluate

SHORT = {"training": {"steps": 2}, "evaluate": {"every": 2}}
FETCHED = {"source": "huggingface", "path": "somebody/digits", "download": True}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Replace the source that fetches by one that has the digits, and return what it was asked for."""
    asked: list[str | None] = []

    def digits(config: SourceConfig) -> SourceListing:
        asked.append(config.path)
        return SOURCES["digits"].find(SourceConfig(source="digits"))

    monkeypatch.setitem(SOURCES, "huggingface", Source(digits, ("path", "download"), reads_files=False))
    return asked


@pytest.fixture(params=["data.download", "data.public.download"])
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def own(tiny: Experiment, key: str, fetched: list[str | None], tmp_path: Path) -> Path:
    """Make a finished run of this user's."""
    data = FETCHED if key == "data.download" else {"public": FETCHED, "public_fraction": 0.0}
    train(tiny.with_values(data=data, **SHORT), tmp_path / "run")
    fetched.clear()
    return tmp_path / "run"


def unfinished(run: Path) -> Path:
    (run / "summary.json").unlink()
    return run


def test_one_s_own_run_fetches_again(own: Path, fetched: list[str | None]) -> None:
    reevaluate(own)
    resume(unfinished(own))
    assert fetched == ["somebody/digits"] * 2


def test_a_stranger_s_run_fetches_nothing_unasked(
    own: Path, key: str, fetched: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "of somebody else"))
    line = f"{own}: {key} = true would fetch huggingface somebody/digits, and you did not make this folder here; to"
    with pytest.raises(RunError, match=f"^{line}"):
        reevaluate(own)
    refused = CliRunner().invoke(app, ["evaluate", str(own)])
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: {line}")
    assert len(refused.stderr.splitlines()) == 1
    with pytest.raises(RunError, match=f"^{line}"):
        resume(unfinished(own))
    assert fetched == []
    resume(own, trust_code=True)
    assert fetched == ["somebody/digits"]


def test_other_data_than_those_of_one_s_own_run(own: Path, key: str, fetched: list[str | None]) -> None:
    """The path is no part of what a run folder is known by: data may be moved."""
    experiment = own / "experiment.toml"
    experiment.write_text(experiment.read_text().replace("somebody/digits", "somebody/else"))
    with pytest.raises(RunError, match=f"{key} = true would fetch huggingface somebody/else, and you did not"):
        reevaluate(own)
    assert fetched == []

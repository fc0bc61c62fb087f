"""The runner: missing cells are run once, and can be stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import pytest

from manyheads import Experiment
from manyheads.engine.cores import usable_cores
from manyheads.engine.options import ResolvedOptions
from manyheads.studies.paper.cell_worker import run_job
from manyheads.studies.paper.code_of_numbers import code_of_numbers
from manyheads.studies.paper.estimate import estimated_seconds, try_out
from manyheads.studies.paper.jobs import CellFailed, CellWorkerLost, Job, JobList, plan_jobs
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.names import REPRODUCTIONS
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import read_results
from manyheads.studies.paper.runner import RunnerObserver, _next, run_all
from manyheads.studies.paper.scales import SCALES
from tests.studies.paper import InThisProcess, make_result

PLAIN = ResolvedOptions("plain")
DIGITS = SCALES["digits"]


@pytest.fixture
def quick(tiny: Experiment) -> Reproduction:
    cells = {
        "mhd": tiny,
        "same again": tiny.with_values(seed=0),
        "alone": tiny.with_values(algorithm={"name": "separate"}),
    }
    return replace(REPRODUCTIONS["heads"], name="quick", cells=lambda scale: cells)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyheads.studies.paper.runner.ProcessPoolExecutor", InThisProcess)


def planned(one: Reproduction, tmp_path: Path, *others: Reproduction, **values: object) -> JobList:
    given = {"seeds": 2, "only": [], "data": None, "stored": {}, "out": tmp_path / "out", "options": PLAIN}
    return plan_jobs([one, *others], DIGITS, **(given | values))  # type: ignore[arg-type]


def test_a_cell_that_is_there_twice_is_run_once(quick: Reproduction, tmp_path: Path) -> None:
    jobs = planned(quick, tmp_path).jobs
    assert [(job.cell, job.experiment.seed) for job in jobs] == [
        ("quick mhd", 0), ("quick mhd", 1), ("quick alone", 0), ("quick alone", 1),
    ]  # fmt: skip
    assert len({job.folder for job in jobs}) == 4
    assert [job.cell for job in planned(quick, tmp_path, only=["alone"], seeds=1).jobs] == ["quick alone"]


def test_one_table_is_filled_after_the_other(quick: Reproduction, tiny: Experiment, tmp_path: Path) -> None:
    """Whoever stops early has whole tables; what both have is run for the first."""
    cells = {"short": tiny.with_values(training={"steps": 4}), "alone": quick.cells(DIGITS)["alone"]}
    first = replace(quick, name="first", cells=lambda scale: cells)
    jobs = planned(first, tmp_path, quick, seeds=1).jobs
    assert [job.cell for job in jobs] == ["first alone", "first short", "quick mhd"]
    assert jobs[2].work > jobs[0].work > jobs[1].work


def test_what_is_stored_is_not_run_unless_by_other_code(
    quick: Reproduction, tmp_path: Path, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = cell_key(tiny), 0
    mine = {at: make_result(0.5, key=at[0], code=code_of_numbers())}
    other = {at: make_result(0.5, key=at[0], code="earlier")}

    def counts(**values: object) -> tuple[int, int, int]:
        found = planned(quick, tmp_path, seeds=1, **values)
        return len(found.jobs), found.stored, found.stale

    assert counts(stored={}) == (2, 0, 0)
    assert counts(stored=mine) == (1, 1, 0)  # two cells are the same, and that is one run
    assert counts(stored=mine, again=True) == (2, 0, 0)
    assert counts(stored=other) == (2, 0, 1)
    assert counts(stored=other, keep=True) == (1, 1, 0)
    folders = {job.folder for job in planned(quick, tmp_path, seeds=1).jobs}
    monkeypatch.setattr("manyheads.studies.paper.code_of_numbers.SAME_NUMBERS", (("earlier", code_of_numbers()),))
    assert counts(stored=other) == (1, 1, 0)
    assert not folders & {job.folder for job in planned(quick, tmp_path, seeds=1).jobs}  # a run of that code goes on


@pytest.mark.slow
def test_results_are_stored_and_the_longest_goes_first(quick: Reproduction, tmp_path: Path) -> None:
    class Counting(RunnerObserver):
        done = 0.0

        def progressed(self, work: float) -> None:
            self.done += work

    jobs, counting = planned(quick, tmp_path, seeds=1).jobs, Counting()
    assert len(list(run_all(jobs, tmp_path / "results", observer=counting))) == 2
    assert jobs[0].work > jobs[1].work
    assert counting.done == pytest.approx(sum(job.work for job in jobs))
    stored = read_results(tmp_path / "results", "digits")
    assert {result.cell for result in stored.values()} == {"quick mhd", "quick alone"}
    assert all(not (job.folder / "checkpoints").exists() for job in jobs)
    assert not planned(quick, tmp_path, seeds=1, stored=stored).jobs
    mhd = stored[cell_key(jobs[0].experiment), 0]
    summary = json.loads((jobs[0].folder / "summary.json").read_text())
    assert mhd.shared_accuracy == pytest.approx(summary["shared_accuracy"], abs=1e-5)
    assert (mhd.code, mhd.engine) == (code_of_numbers(), "plain")


@pytest.mark.usefixtures("in_this_process")
def test_one_that_fails_does_not_keep_the_others_from_running(quick: Reproduction, tmp_path: Path) -> None:
    good = planned(quick, tmp_path, seeds=1).jobs
    bad = replace(good[0], cell="bad", experiment=good[0].experiment.with_values(training={"learning_rate": 1e6}))
    with pytest.raises(CellFailed, match=r"^bad, seed 0: step .*; lower training.learning_rate"):
        list(run_all([bad, good[1]], tmp_path / "results", at_once=1))
    assert [result.cell for result in read_results(tmp_path / "results", "digits").values()] == ["quick alone"]


def test_what_nobody_expected_stops_one_cell_and_is_written_down(
    quick: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = planned(quick, tmp_path, seeds=1).jobs[0]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr("manyheads.studies.paper.cell_worker.train", fail)
    with pytest.raises(CellFailed, match=r"^RuntimeError: the device is lost \(see .*error\.txt\)"):
        run_job(job)
    assert "in fail" in job.folder.with_name(f"{job.folder.name}.error.txt").read_text()
    monkeypatch.undo()
    assert run_job(job) is not None  # the folder is free


@pytest.mark.slow
def test_a_worker_that_somebody_stops_is_told_of(quick: Reproduction, tmp_path: Path) -> None:
    class Stopping(RunnerObserver):
        def progressed(self, work: float) -> None:
            for child in active_children():
                child.terminate()

    long = [
        replace(job, experiment=job.experiment.with_values(training={"steps": 2000}))
        for job in planned(quick, tmp_path).jobs
    ]
    with pytest.raises(CellWorkerLost, match=r"^a worker process was stopped; the same command continues$"):
        list(run_all(long, tmp_path / "results", at_once=1, observer=Stopping()))
    assert not read_results(tmp_path / "results", "digits")


def test_data_may_move_while_a_cell_is_stopped(
    tiny: Experiment, small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"source": "npz", "path": str(small_npz), "primary_labels": {"per_client": 2}}
    job = Job("npz", "digits", tiny.with_values(data=data), tmp_path / "npz", PLAIN)
    stopped_at_once(job, monkeypatch)
    moved = small_npz.rename(tmp_path / "moved.npz")
    there = replace(job, experiment=job.experiment.with_values(data={"path": str(moved)}))
    result = run_job(there)
    assert result is not None
    anew = run_job(replace(there, folder=tmp_path / "anew"))
    assert anew is not None
    assert not result.differing_measures(anew)


def stopped_at_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a job, and stop it at its first report of progress."""
    with monkeypatch.context() as for_once:
        told = iter([partial(os.kill, os.getpid(), signal.SIGINT)])
        for_once.setattr(
            "manyheads.studies.paper.cell_worker._JobObserver.progressed", lambda *_: next(told, lambda: None)()
        )
        assert run_job(job) is None


@pytest.mark.parametrize(("before", "after"), [("seed = 0", "seed = 1"), ("steps = 20", "steps = 4")])
@pytest.mark.parametrize("state", ["begun", "ended"])
def test_a_run_of_another_experiment_is_not_stored_as_this_cell(
    quick: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, before: str, after: str
) -> None:
    (job,) = planned(quick, tmp_path, seeds=1, only=["alone"]).jobs
    if state == "begun":
        stopped_at_once(job, monkeypatch)
        assert not (job.folder / "checkpoints" / "manifest.json").exists()  # which would name the experiment
    else:
        assert run_job(job) is not None
    place = job.folder / "experiment.toml"
    whole = place.read_text()
    place.write_text(whole.replace(before, after))
    with pytest.raises(CellFailed, match="holds a run of another experiment than this cell; move it away") as error:
        run_job(job)
    assert len(str(error.value).splitlines()) == 1
    assert place.read_text() == whole.replace(before, after)
    place.write_text(whole)
    result = run_job(job)
    assert result is not None
    assert result.seed == 0


def test_a_run_does_not_change_from_gpu_to_cpu_on_its_way(quick: Reproduction, tmp_path: Path) -> None:
    def folder(engine: str, device: str = "cpu", precision: str = "float32") -> str:
        options = ResolvedOptions(engine, device, precision=precision)
        return planned(quick, tmp_path, seeds=1, options=options).jobs[0].folder.name

    assert folder("plain") == folder("parallel")
    assert "-cuda-" in folder("plain", "cuda")
    assert folder("plain", "cuda") != folder("plain", "cuda", "tf32")


@pytest.mark.usefixtures("in_this_process")
def test_again_runs_what_has_ended(quick: Reproduction, tmp_path: Path) -> None:
    def ended(**values: object) -> int:
        jobs = planned(quick, tmp_path, seeds=1, only=["alone"], **values).jobs
        list(run_all(jobs, tmp_path / "results", at_once=1))
        return (jobs[0].folder / "summary.json").stat().st_mtime_ns

    first = ended()
    second = ended(again=True)
    assert second > first
    for path in (tmp_path / "results" / "digits").iterdir():  # a result that was removed is made again, too
        path.unlink()
    assert ended() > second
    assert len(read_results(tmp_path / "results", "digits")) == 1


SCRIPT = """
from pathlib import Path
import sys
from manyheads.config.experiment import Experiment
from manyheads.engine.options import ResolvedOptions
from manyheads.errors import Stopped
from manyheads.studies.paper.jobs import Job
from manyheads.studies.paper.runner import run_all

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    jobs = [
        Job(name, "digits", Experiment.load(folder / f"{name}.toml"), folder / name, ResolvedOptions())
        for name in ("long", "short")
        if not (folder / "results" / "digits").exists() or not list((folder / "results" / "digits").glob(f"{name}*"))
    ]
    try:
        for result in run_all(jobs, folder / "results", at_once=2):
            print(result.shared_accuracy, flush=True)
    except Stopped as stopped:
        sys.exit(str(stopped))
"""


@pytest.mark.usefixtures("in_this_process")
def test_what_somebody_keeps_in_the_folder_of_a_cell_stays(quick: Reproduction, tmp_path: Path) -> None:
    (job,) = planned(quick, tmp_path, seeds=1, only=["alone"]).jobs
    old = job.folder.with_name(f".{job.folder.name}.old")
    old.mkdir(parents=True)

    run_job(job)
    (job.folder / "checkpoints" / "thesis.txt").write_text("precious")
    assert len(list(run_all([job], tmp_path / "results"))) == 1
    assert [path.name for path in (job.folder / "checkpoints").iterdir()] == ["thesis.txt"]
    with pytest.raises(CellFailed, match=r"thesis\.txt: was not made by this run") as error:
        list(run_all([replace(job, again=True)], tmp_path / "results"))
    assert "\n" not in str(error.value)
    (job.folder / "checkpoints" / "thesis.txt").unlink()
    assert len(list(run_all([replace(job, again=True)], tmp_path / "results"))) == 1
    assert old.is_dir()


@pytest.mark.slow
def test_it_can_be_stopped_and_continues(tiny: Experiment, tmp_path: Path) -> None:
    """The runner can be stopped while another worker has nothing to do, too."""
    (tmp_path / "long.toml").write_text(str(tiny.with_values(training={"steps": 400, "log_every": 5})))
    (tmp_path / "short.toml").write_text(str(tiny.with_values(algorithm={"name": "separate"}, training={"steps": 5})))
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "long" / "metrics.jsonl"
    while not (list(tmp_path.glob("results/digits/short*")) and metrics.exists() and "losses" in metrics.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert "stopped; the same command continues" in process.communicate(timeout=60)[1]
    assert (tmp_path / "long" / "checkpoints" / "manifest.json").exists()
    before = metrics.read_text().splitlines()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert metrics.read_text().splitlines()[: len(before)] == before
    assert len(read_results(tmp_path / "results", "digits")) == 2


@pytest.mark.slow
def test_workers_do_not_outlive_who_started_them(tiny: Experiment, tmp_path: Path) -> None:
    for name in ("long", "short"):
        (tmp_path / f"{name}.toml").write_text(str(tiny.with_values(training={"steps": 400, "log_every": 5})))
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py"), str(tmp_path)])
    metrics = [tmp_path / name / "metrics.jsonl" for name in ("long", "short")]
    while not all(path.exists() and b'"losses"' in path.read_bytes() for path in metrics):  # there is an edge to save
        assert process.poll() is None
        time.sleep(0.05)
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30.0
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (tmp_path / "long" / "checkpoints" / "manifest.json").exists()  # what they did is saved


def test_other_engines_have_the_machine_for_themselves(tiny: Experiment, tmp_path: Path) -> None:
    def share(engine: str, device: str = "cpu") -> float:
        return Job("x", "digits", tiny, tmp_path, ResolvedOptions(engine, device)).share

    assert share("plain") == 1.0 / usable_cores()
    assert share("parallel") == share("ray") == share("plain", "cuda") == 1.0


def test_a_few_steps_tell_how_long_all_take(tiny: Experiment, tmp_path: Path) -> None:
    job = Job("mhd", "digits", tiny, tmp_path / "run", PLAIN)
    longer = Job("mhd", "digits", tiny.with_values(training={"steps": 10 * tiny.training.steps}), tmp_path, PLAIN)
    assert longer.work == 10 * job.work
    assert estimated_seconds(longer) > estimated_seconds(job) > 0.0
    assert try_out(job, 2) > 0.0
    assert not (tmp_path / "run").exists()


def test_cells_share_a_gpu_as_their_clients_fill_it(tiny: Experiment, tmp_path: Path) -> None:
    def job(clients: int) -> Job:
        return Job("x", "digits", tiny.with_values(clients=clients), tmp_path, ResolvedOptions("cuda", "cuda"))

    large, half, one = job(4), job(2), job(1)
    assert _next([large], [], None) is large
    assert _next([large, half], [half], None) is half
    assert _next([large, half, one], [half, half], None) is None
    assert _next([large, one], [one] * 3, None) is one
    assert _next([one], [one] * 4, None) is None
    assert _next([large], [large], 2) is large
    assert _next([one], [large, large], 2) is None
    assert _next([job(20)], [], None) is not None

"""`run --beside`: the same clients trained in several ways, by one command that can be repeated."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from manyheads import Experiment
from manyheads.cli.commands import app
from manyheads.report.advice import read_settings
from manyheads.runs.read import read_summary
from manyheads.studies.beside import experiment_for, plan_beside

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def short(tiny: Experiment, tmp_path: Path) -> Path:
    """Four steps."""
    path = tmp_path / "short.toml"
    path.write_text(str(tiny.with_values(training={"steps": 4, "log_every": 4}, evaluate={"every": 4})))
    return path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def files() -> dict[Path, tuple[int, int]]:
    """Return every file with its time and size."""
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in Path().rglob("*") if p.is_file()}


def untrained(name: str) -> str:
    """Let a run look as if it had been killed just before its end."""
    summary = Path("runs/short") / name / "summary.json"
    text = summary.read_text()
    summary.unlink()
    return str(json.loads(text)["shared_accuracy"])


def test_one_command_trains_both_ways_and_says_what_is_gained(short: Path) -> None:
    result = call("run", short, "--beside", "separate")
    assert result.exit_code == 0, result.output
    assert "1/2 mhd: step 4/4" in result.output
    assert "2/2 separate: step 4/4" in result.output
    assert "alone (separate) and together (mhd)" in result.output
    assert len(re.findall(r"^\| client-\d ", result.output, re.MULTILINE)) == 3
    (means,) = re.findall(r"^\| mean of 3 .*", result.output, re.MULTILINE)
    assert re.search(r"orth joining with these settings: on average", result.output)
    cells = [cell.strip() for cell in means.split("|")]
    assert f"by {cells[8]} points ({cells[6]} -> {cells[7]} %) on everybody's task" in result.output
    assert f"by {cells[5]} points ({cells[3]} -> {cells[4]} %) on its own" in result.output
    assert "Test accuracy in % by way" not in result.output
    assert "--seeds 3 shows the spread" in result.output
    assert {path.name for path in Path("runs/short").iterdir()} == {"mhd", "separate"}
    assert read_summary(Path("runs/short/separate")).algorithm == "separate"


def test_the_same_command_continues_and_then_trains_nothing(short: Path) -> None:
    arguments = ("run", short, "--beside", "separate,supervised")
    first = call(*arguments)
    assert first.exit_code == 0, first.output
    before = untrained("separate")
    again = call(*arguments)
    assert again.exit_code == 0, again.output
    assert "2/3 separate: " not in again.output  # it had only to end
    assert str(read_summary(Path("runs/short/separate")).shared_accuracy) == before
    found = files()
    third = call(*arguments)
    assert third.exit_code == 0, third.output
    assert files() == found
    assert "step 4/4" not in third.output
    assert third.output == first.output[first.output.index("Test accuracy in % alone") :]


def test_seeds_have_folders_of_their_own_and_a_spread(short: Path) -> None:
    result = call("run", short, "--beside", "separate", "--seeds", "2")
    assert result.exit_code == 0, result.output
    assert "4/4 separate seed 1: step 4/4" in result.output
    assert "over 2 seeds" in result.output
    assert re.search(r"\| mean of 3 +\| +\d+ \| +\d+\.\d ± \d+\.\d \|", result.output)
    assert "--seeds 3 shows" not in result.output
    runs = {str(path.parent) for path in Path().glob("runs/short/*/*/summary.json")}
    assert runs == {f"runs/short/{way}/seed-{seed}" for way in ("mhd", "separate") for seed in (0, 1)}
    compared = call("compare", "runs/short/mhd", "runs/short/separate")
    assert compared.exit_code == 0, compared.output


def test_a_way_that_does_not_fit_is_a_row_with_its_reason(short: Path) -> None:
    models = "model.backbone=['cnn', 'cnn', 'resnet8']"
    result = call("run", short, "--beside", "separate,averaging", "--set", models)
    assert result.exit_code == 0, result.output
    assert "2/2 separate" in result.output
    assert re.search(r"\| averaging +\| +\| +\| +\| algorithm.name = \"averaging\": the weights of", result.output)
    assert not Path("runs/short/averaging").exists()


def test_groups_are_left_out_only_where_nobody_exchanges(tiny: Experiment) -> None:
    grouped = tiny.with_values(groups=[[0, 1], [2]])
    plan = plan_beside(grouped, ["separate", "fedmd", "averaging"], 1, Path("runs"))
    assert [run.way for run in plan.runs] == ["mhd", "separate"]
    assert all("has no groups" in plan.missing[way] for way in ("fedmd", "averaging"))
    assert experiment_for(grouped, "separate").groups == []


def test_every_way_has_its_own_defaults_and_fedmd_twice_the_steps(tiny: Experiment) -> None:
    fedmd = experiment_for(tiny, "fedmd")
    assert (fedmd.training.steps, fedmd.training.warmup_steps, fedmd.algorithm.options()) == (40, 4, {})
    usual = Experiment(clients=3, data={"source": "digits"}, training={"steps": 200})
    assert experiment_for(usual, "fedmd").training.warmup_steps == 20
    back = experiment_for(fedmd, "mhd")
    assert (back.training.steps, back.training.warmup_steps) == (20, 2)
    supervised = experiment_for(tiny, "supervised")
    assert (supervised.clients, supervised.algorithm.name, supervised.training.steps) == (1, "separate", 20)
    separate = experiment_for(tiny, "separate").keys()
    assert {key for key, value in tiny.keys().items() if separate.get(key) != value} == {
        key for key in [*tiny.keys()] if key.startswith("algorithm.")
    }


def test_the_file_may_be_the_one_that_trains_alone(short: Path) -> None:
    result = call("run", short, "--set", "algorithm={name='separate'}", "--beside", "averaging")
    assert result.exit_code == 0, result.output
    assert "alone (separate) and together (averaging)" in result.output


def test_without_separate_nothing_is_said_of_a_gain(short: Path) -> None:
    result = call("run", short, "--beside", "supervised")
    assert result.exit_code == 0, result.output
    assert "Test accuracy in % by way" in result.output
    assert "is the difference between separate and another way" in result.output
    assert "orth joining" not in result.output


def test_a_worker_per_client_is_too_many_for_one_model(short: Path) -> None:
    result = call("run", short, "--beside", "supervised", "--engine", "parallel", "--workers", "2")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        ("mhd", "--beside mhd: is what the experiment itself trains; leave it out"),
        ("separate,mhd", "--beside mhd: is what the experiment itself trains"),
        ("fedavg", '--beside fedavg: unknown; FedAvg is "averaging" on the complete graph'),
        ("Gossip", 'gossip is "averaging" on any graph but the complete one'),
        ("seperate", 'did you mean "separate"?'),
        ("separate,separate", "names separate twice"),
        ("separate,", "--beside: a name is empty"),
        ("", "--beside: a name is empty"),
        ("os:system", "--beside os:system: unknown"),
    ],
)
def test_mistakes_end_in_one_line(short: Path, ways: str, says: str) -> None:
    _refused(says, "run", short, "--beside", ways)
    assert not Path("runs").exists()


def test_folders_that_hold_something_else_are_refused_before_anything_is_trained(short: Path) -> None:
    assert call("run", short, "--out", "one").exit_code == 0
    _refused("one: is itself a run", "run", short, "--beside", "separate", "--out", "one")
    assert call("run", short, "--out", "more/separate").exit_code == 0  # it is not separate
    _refused("more/separate: holds a different experiment", "run", short, "--beside", "separate", "--out", "more")
    _refused("more/separate: is itself a run", "run", short, "--beside", "separate", "--out", "more", "--seeds", "2")
    Path("theirs/mhd").mkdir(parents=True)
    Path("theirs/mhd/letter.txt").write_text("Dear all")
    _refused("theirs/mhd: exists already", "run", short, "--beside", "separate", "--out", "theirs")
    assert not Path("more/mhd").exists()
    assert not Path("theirs/separate").exists()


def _refused(says: str, *arguments: str | Path) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert says in line


def test_several_seeds_say_when_distillation_did_not_help(short: Path) -> None:
    result = call("run", short, "--seeds", "2", "--out", "seeds")
    assert result.exit_code == 0, result.output
    (means,) = re.findall(r"^\| shared(?:.*\n)+?\| +\| mean (.*)", result.output, re.MULTILINE)
    by_head = re.findall(r"\d+\.\d", means)
    if (said := re.search(r"Distillation did not help here: .*", result.output)) is not None:
        assert f"{by_head[0]} %" in said[0]
        assert "more steps (training.steps = 4 is short" in said[0]
    shared = [read_summary(Path(f"seeds/seed-{seed}")).validation for seed in (0, 1)]
    sums = [sum(values) for values in zip(*(own.shared_accuracy for own in shared if own), strict=True)]
    best = max(range(3), key=lambda head: (sums[head], -head))
    assert (said is not None) == (best == 0 or float(by_head[best]) < float(by_head[0]))


def test_advice_knows_what_a_run_was_told(short: Path) -> None:
    sizes = ("--set", "training.public_batch_size=400", "--set", "algorithm.confidence=density")
    result = call("run", short, "--beside", "separate,fedmd,averaging", *sizes)
    assert result.exit_code == 0, result.output
    own, fedmd, averaging = (read_settings(Path("runs/short") / way) for way in ("mhd", "fedmd", "averaging"))
    assert (own.algorithm, own.steps, own.confidence, own.groups) == ("mhd", 4, "density", False)
    assert (own.public_samples, own.passes) == (431, 4 * 400 / 431)
    assert (fedmd.steps, fedmd.passes, fedmd.confidence) == (8, 4 * 400 / 431, None)  # every second step is public
    assert (averaging.public_samples, averaging.passes, averaging.average_every) == (None, None, 1)

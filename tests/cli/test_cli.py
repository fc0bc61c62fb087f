"""The command line as a new user meets it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from manyheads import ConfigurationError, Experiment, load_model
from manyheads.cli.commands import app
from manyheads.report.text import percent
from tests.conftest import DIVERGES

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: str | Path) -> str:
    """The one line that a mistake ends in; status 2, no traceback, nothing written."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.output
    assert lines[0].startswith("error: ")
    assert not list(Path().glob("runs/*"))
    return lines[0]


def test_run_shows_a_table_and_leaves_pictures(tiny_file: Path) -> None:
    result = call("run", tiny_file)
    assert result.exit_code == 0, result.output
    assert "tiny: step 20/20: private" in result.output
    assert len(re.findall(r"\| mean ", result.output)) == 2
    assert "On average, head" in result.output
    assert "\x1b[" not in result.output
    folder = Path("runs/tiny")
    always, learning = {"accuracy", "losses", "split"}, {"hops", "matrix", "taught"}
    assert {p.stem for p in (folder / "plots").iterdir()} == always | learning
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (folder / "plots").iterdir())
    assert json.loads((folder / "summary.json").read_text())["steps"] == 20


def test_set_out_and_seed(tiny_file: Path) -> None:
    result = call("run", tiny_file, "--set", "training.steps=8", "--set", "evaluate.every=4", "--out", "a/b", "--quiet")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("a/b/summary.json").read_text())["steps"] == 8


def test_seeds_report_mean_and_spread_and_go_on(tiny_file: Path) -> None:
    arguments = ("run", tiny_file, "--seeds", "2", "--out", "many")
    first = call(*arguments)
    assert first.exit_code == 0, first.output
    assert "mean" in first.output
    assert "std. deviation" in first.output
    both = call("compare", "many", "many/seed-0", "--plot", "many.png")
    assert both.exit_code == 0, both.output
    assert re.search(r"\| many +\| +3 \| +\d+\.\d ± \d+\.\d \|", both.output)
    summaries = [json.loads(Path(f"many/seed-{seed}/summary.json").read_text()) for seed in (0, 1)]
    values = [summary["shared_accuracy"][-1] for summary in summaries]
    assert percent(sum(values) / 2) in first.output
    Path("many/seed-1/summary.json").unlink()  # as if it had been killed just before its end
    again = call(*arguments)
    assert again.exit_code == 0, again.output
    assert (
        json.loads(Path("many/seed-1/summary.json").read_text())["shared_accuracy"] == summaries[1]["shared_accuracy"]
    )
    other = call("run", tiny_file, "--seeds", "1", "--out", "many/seed-9", "--set", "training.steps=8")
    assert other.exit_code == 0, other.output
    assert "many/seed-9: holds a different experiment" in call("compare", "many").stderr
    other = call(*arguments, "--set", "seed=20")
    assert other.exit_code == 2
    assert "holds a different experiment" in other.stderr


def test_resume_of_a_finished_run_says_so(tiny_file: Path) -> None:
    call("run", tiny_file, "--out", "run")
    result = call("resume", "run")
    assert result.exit_code == 0
    assert "has already ended" in result.output
    shutil.rmtree("run/plots")
    call("resume", "run")
    assert Path("run/plots/accuracy.png").exists()


def test_compare_and_export(tiny_file: Path) -> None:
    call("run", tiny_file, "--out", "one")
    call("run", tiny_file, "--out", "two", "--set", "algorithm={name='separate'}")
    result = call("compare", "one", "two", "--plot", "both.png")
    assert result.exit_code == 0, result.output
    assert re.search(r"\| one +\| +3 \|", result.output)
    assert 'one: algorithm.name = "mhd"' in result.output
    assert 'two: algorithm.name = "separate"' in result.output
    assert Path("both.png").exists()
    exported = call("export", "one", "--client", "1", "--out", "model")
    assert exported.exit_code == 0, exported.output
    card = Path("model/README.md").read_text()
    summary = json.loads(Path("one/summary.json").read_text())["clients"][1]
    assert percent(summary["shared_accuracy"][0]) in card
    assert f"for all classes use head {summary['deploy']['shared']}" in card
    images = np.zeros((2, 8, 8, 1), dtype=np.uint8)
    import torch

    for head in range(3):
        from_run, from_export = load_model("one", 1, head=head), load_model("model", head=head)
        assert torch.equal(from_run(torch.from_numpy(images)), from_export(torch.from_numpy(images)))
    assert load_model("model", task="private").head == summary["deploy"]["private"]
    with pytest.raises(ConfigurationError, match="holds the model of client-1 only"):
        load_model("model", client=2)
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code
    exec(code.group(1).replace("PATH/OF/THIS/FOLDER", "model"), {})  # noqa: S102


def test_split_prints_and_plots(tiny_file: Path) -> None:
    result = call("split", tiny_file)
    assert result.exit_code == 0, result.output
    assert "Samples: training 1437, public 431, validation 144, private 862, unused 0, test 360" in result.output
    assert Path("tiny-split.png").exists()
    assert not Path("runs").exists()
    many = call("split", tiny_file, "--set", "data.partition=dirichlet", "--plot", "d.png")
    assert many.exit_code == 0, many.output


@pytest.mark.usefixtures("short_demo")
def test_demo_replaces_its_runs() -> None:
    for _ in range(2):
        result = call("demo")
        assert result.exit_code == 0, result.output
    names = ("separate", "mhd", "supervised")
    assert {p.name for p in Path("runs/demo").iterdir()} == {*names, "demo.png"}
    assert all((Path("runs/demo") / name / "summary.json").exists() for name in names)
    assert all(re.search(rf"\| {name} ", result.output) for name in names)
    assert "A client that trains alone recognises" in result.output
    Path("other/mhd").mkdir(parents=True)
    Path("other/mhd/thesis.txt").write_text("precious")
    spared = call("demo", "--out", "other")
    assert spared.exit_code == 2
    assert Path("other/mhd/thesis.txt").exists()


@pytest.mark.usefixtures("short_demo")
def test_demo_leaves_other_runs_alone(tiny_file: Path) -> None:
    call("run", tiny_file, "--out", "mine/mhd", "--set", "training.steps=8")
    assert "is not a run of the demo" in refused("demo", "--out", "mine")
    assert Path("mine/mhd/summary.json").exists()
    call("demo", "--out", "theirs", "--seed", "3")
    assert call("demo", "--out", "theirs").exit_code == 0


def test_another_name_lets_go_of_the_old_one_s_keys(tiny_file: Path) -> None:
    short = ("--set", "training.steps=4", "--set", "evaluate.every=4")
    assert call("run", tiny_file, *short, "--set", "algorithm.name=separate", "--out", "a").exit_code == 0
    changed = ("--set", "algorithm.nu_aux=1.0", "--set", "graph={name='islands', size=3}")
    assert call("run", tiny_file, *short, *changed, "--out", "b").exit_code == 0
    assert Experiment.load("b/experiment.toml").algorithm.options()["pool_size"] == 3  # kept: the name is the same
    even = ("--set", "data.primary_labels.assignment=even", "--set", "data.primary_labels.clients_per_label=1")
    made = call("run", "b/experiment.toml", *even, "--set", "graph.name=cycle", "--out", "c")
    assert made.exit_code == 0, made.output


@pytest.mark.slow
def test_an_algorithm_in_the_working_folder_is_found(tiny_file: Path) -> None:
    Path("my_lab.py").write_text(
        "from dataclasses import dataclass\nfrom manyheads.algorithms.separate import Separate\n"
        "@dataclass(frozen=True)\nclass Mine(Separate):\n    knob: float = 1.0\n"
    )
    command = [str(Path(sys.executable).parent / "manyheads"), "run", str(tiny_file), "--out", "run"]
    done = subprocess.run(
        [*command, "--set", "algorithm={name='my_lab:Mine', knob=2.0}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Experiment.load("run/experiment.toml").algorithm.options() == {"knob": 2.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.stepz=3"], 'training.stepz: unknown key; did you mean "steps"?'),
        (["clients=1"], 'clients = 1: algorithm.name = "mhd" needs at least 2 clients'),
        (["clients='x'"], 'clients = "x": input should be a valid integer'),
        (["algorithm.nu_auxx=1.0"], 'algorithm.nu_auxx: unknown key; did you mean "nu_aux"?'),
        (["algorithm.nu_aux=-1.0"], "algorithm.nu_aux = -1.0: input should be greater than or equal to 0"),
        (["algorithm.nu_aux='3'"], 'algorithm.nu_aux = "3": input should be a valid number'),
        (["algorithm.ramp={hold=2.0}"], "algorithm.ramp.hold = 2.0"),
        (["algorithm.ramp={holt=0.2}"], 'algorithm.ramp.holt: unknown key; did you mean "hold"?'),
        (["algorithm.distils=true"], "algorithm.distils: unknown key; known: ask, average_every, confidence, exchange"),
        (["algorithm={name=':x'}"], 'algorithm.name = ":x": cannot be imported'),
        (
            ["algorithm={name='torch.nn:Linear'}"],
            "is the class Linear; needed: a frozen dataclass that inherits from manyheads.algorithms.base.Algorithm",
        ),
        (["algorithm.confidence=maximum"], 'algorithm.confidence = "maximum": unknown confidence'),
        (["algorithm.select=some"], "algorithm.select"),
        (["algorithm.targets_per_step=4"], "targets_per_step = 4: at most pool_size = 3"),
        (["algorithm.select=all", "algorithm.self_target=true"], "self_target = true: has no meaning"),
        (["algorithm.name=mdh"], 'algorithm.name = "mdh": unknown algorithm; did you mean "mhd"?'),
        (["algorithm={name='nowhere.such:Thing'}"], "cannot be imported"),
        (["graph=complete"], 'graph = "complete": is a section; write [graph] with name = "complete"'),
        (["graph={name='edges', edges=[[0,1],[1,9]]}"], "graph.edges: client 9 does not exist (clients = 3: 0 to 2)"),
        (["graph={name='edges', edges=[[0,1],[1,0]]}"], "client 2 has nobody to learn from"),
        (["clients=5", "graph={name='islands', size=2}"], "client 4 has nobody to learn from"),
        (["data.primary_labels={per_client=11}"], "data.primary_labels.per_client = 11: there are only 10 labels"),
        (["data.public_fraction=0.0"], "data.public_fraction = 0: the public set has no samples"),
        (["data.source=npz", "data.path=none.npz"], 'data.path = "none.npz": cannot be read: No such file'),
        (["data.source=folders"], 'data.source = "folders": unknown source'),
        (["data.partition=dirichlet", "data.alpha=0.001", "clients=40"], "is left without samples"),
        (["training.batch_size=900"], "training.batch_size = 900: larger than all 862 private samples"),
        (["training.public_batch_size=500"], "training.public_batch_size = 500: larger than the 431 public samples"),
        (["clients=100000000"], "clients = 100000000: input should be less than or equal to 100000"),
        (["clients=100000"], "clients = 100000: more than the 1437 training samples"),
        (["model.width=100000000"], "model.width = 100000000: must be a number of channels from 1 to 65,536"),
        (["algorithm.pool_start=empty", "algorithm.pool_every=100"], "training.steps = 20: nothing is exchanged"),
        (
            ["graph={name='phases', phases=[{steps=100, name='edges', edges=[[0,1],[1,0]]}, {name='cycle'}]}"],
            "client 2 has nobody to learn from",
        ),
        (["training.warmup_steps=50"], "training.warmup_steps = 50: longer than training.steps = 20"),
        (["model.backbone=resnet"], 'model.backbone = "resnet": unknown backbone; did you mean'),
        (["model.auxiliary_heads=0"], "model.auxiliary_heads = 0"),
    ],
)
def test_every_wrong_configuration_ends_in_one_line(tiny_file: Path, settings: list[str], message: str) -> None:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    assert message in refused("run", tiny_file, *flags)


def test_wrong_files_folders_and_options(tiny_file: Path) -> None:
    assert "cannot be read" in refused("run", "none.toml")
    assert "unknown engine" in refused("run", tiny_file, "--engine", "warp")
    assert "unknown device" in refused("run", tiny_file, "--device", "abacus")
    assert "not a run folder" in refused("resume", ".")
    assert "not a run folder" in refused("compare", ".")
    assert "not a run folder" in refused("export", ".")
    call("run", tiny_file, "--out", "run")
    assert "exists already" in refused("run", tiny_file, "--out", "run")
    assert "this run has clients 0 to 2" in refused("export", "run", "--client", "3")


def test_not_a_number_stops_with_one_line_and_no_folder(tiny_file: Path) -> None:
    settings = [f"{section}.{key}={value}" for section, keys in DIVERGES.items() for key, value in keys.items()]
    line = refused("run", tiny_file, *(word for setting in settings for word in ("--set", setting)))
    assert re.search(r'step \d+, client-\d: the loss term "\w+" is (nan|inf)', line)


def test_places_that_cannot_be_written(tiny_file: Path) -> None:
    Path("file").write_text("")
    for arguments in (
        ("run", tiny_file, "--out", "file/run"),
        ("run", tiny_file, "--seeds", "2", "--out", "file"),
        ("demo", "--out", "file"),
        ("split", tiny_file, "--plot", "nowhere/split.png"),
    ):
        assert re.match(r"error: .*: (Not a directory|No such file or directory)", refused(*arguments))


def test_names_are_text_not_markup(small_npz: Path, tiny: Experiment) -> None:
    arrays = dict(np.load(small_npz))
    np.savez(small_npz, **arrays, class_names=np.array(["[/b]", "[red]", "$x_{$", "a", "b"]))
    data = {"source": "npz", "path": str(small_npz), "primary_labels": {"assignment": "random", "per_client": 3}}
    Path("odd.toml").write_text(str(tiny.with_values(data=data)))
    result = call("run", "odd.toml", "--out", "run[a]")
    assert result.exit_code == 0, result.output
    assert "[/b]" in result.output
    assert "[red]" in result.output
    assert "run[a]" in call("compare", "run[a]").output
    assert call("split", "odd.toml").exit_code == 0


def test_seeds_are_all_checked_first(tiny_file: Path) -> None:
    tight = ("--set", "data.partition=dirichlet", "--set", "data.alpha=0.02", "--set", "clients=5")
    assert call("split", tiny_file, *tight).exit_code == 0  # the first seed alone would do, the fourth would not
    assert "is left without" in refused("run", tiny_file, "--seeds", "6", *tight)
    call("run", tiny_file, "--out", "one")
    assert "is itself a run" in refused("run", tiny_file, "--seeds", "2", "--out", "one")


def test_as_a_process() -> None:
    """The installed command itself: help, version, and the status of a mistake."""
    command = [sys.executable, "-m", "manyheads"]
    assert "demo" in subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "manyheads 0." in subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    mistake = subprocess.run([*command, "run", "none.toml"], capture_output=True, text=True, check=False)
    assert (mistake.returncode, mistake.stdout) == (2, "")
    assert mistake.stderr == "error: none.toml: cannot be read: No such file or directory\n"


def test_evaluate_judges_a_finished_run_again(tiny_file: Path) -> None:
    call("run", tiny_file)
    before = {p: p.read_bytes() for p in Path("runs/tiny").rglob("*") if p.is_file()}
    result = call("evaluate", "runs/tiny", "--probe")
    assert result.exit_code == 0, result.output
    assert "The embedding allows about" in result.output
    measured = json.loads(Path("runs/tiny/evaluation.json").read_text())
    summary = json.loads(Path("runs/tiny/summary.json").read_text())
    assert measured["test"]["shared_accuracy"] == summary["shared_accuracy"]
    assert measured["test"]["by_hop"] == summary["by_hop"]
    assert len(measured["probe"]) == 3
    assert {p: p.read_bytes() for p in before} == before, "what the run wrote stays as it is"


def test_a_probe_needs_weights(tiny_file: Path) -> None:
    call("run", tiny_file, "--out", "mine")
    shutil.rmtree("mine/checkpoints")
    assert "holds no weights" in refused("evaluate", "mine", "--probe")
    assert "not a run folder" in refused("evaluate", "nowhere")


@pytest.mark.slow
def test_a_frontier_runs_draws_and_goes_on(tiny_file: Path) -> None:
    result = call("frontier", tiny_file, "--out", "front")
    assert result.exit_code == 0, result.output
    cells = {"weights", "top-10-float16", "top-3-float16", "top-1-float16", "top-3-8-bits", "top-3-float16-embedding"}
    cells |= {"fedavg-every-4", "fedavg-every-20", "separate"}
    assert {p.name for p in Path("front").iterdir()} == cells | {"frontier.png"}
    received = {name: json.loads(Path(f"front/{name}/seed-0/summary.json").read_text()) for name in cells}
    sizes = [sum(received[name]["bytes_received"]) for name in ("top-1-float16", "top-3-float16", "top-10-float16")]
    assert sizes == sorted(sizes)
    assert sizes[0] > 0
    stamps = {p: p.stat().st_mtime_ns for p in Path("front").rglob("summary.json")}
    shutil.rmtree("front/separate")
    assert call("frontier", tiny_file, "--out", "front").exit_code == 0
    assert all(p.stat().st_mtime_ns == stamp for p, stamp in stamps.items() if "separate" not in p.parts)
    assert Path("front/separate/seed-0/summary.json").exists()
    assert "holds a different experiment" in refused("frontier", tiny_file, "--out", "front", "--set", "clients=2")
    assert 'starts from an experiment with "mhd"' in refused("frontier", tiny_file, "--set", "algorithm.name=separate")


def test_evaluate_shows_what_it_measured_and_not_what_was_written(tiny_file: Path) -> None:
    call("run", tiny_file)
    path = Path("runs/tiny/summary.json")
    summary = json.loads(path.read_text())
    for client in (summary, *summary["clients"]):
        client["shared_accuracy"] = [0.98765] * 3
    path.write_text(json.dumps(summary))
    result = call("evaluate", "runs/tiny")
    assert result.exit_code == 0, result.output
    assert "98.8" not in result.output


def test_a_frontier_of_different_models_has_no_fedavg(tiny_file: Path) -> None:
    settings = ("--set", "model.width=[4, 6, 4]", "--set", "groups=[[0, 2], [1]]", "--set", "training.steps=8")
    result = call("frontier", tiny_file, "--out", "mixed", *settings)
    assert result.exit_code == 0, result.output
    assert not list(Path("mixed").glob("fedavg*"))
    assert Path("mixed/top-3-float16/seed-0/summary.json").exists()

"""The command `manyheads reproduce`, as a user meets it."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from manyheads import Experiment
from manyheads.cli.commands import app
from manyheads.config.data import DataConfig
from manyheads.console import Screen
from manyheads.data.pack import pack
from manyheads.engine.options import ResolvedOptions
from manyheads.errors import Stopped
from manyheads.rounding import rounding
from manyheads.setup.resolve import resolve
from manyheads.studies.paper import command
from manyheads.studies.paper.cell_worker import processor_name
from manyheads.studies.paper.claims import Claim, above, at
from manyheads.studies.paper.code_of_numbers import code_of_numbers
from manyheads.studies.paper.jobs import Job
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.measures import LAST, SHARED
from manyheads.studies.paper.names import REPRODUCTIONS
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.runner import run_all
from manyheads.studies.paper.scales import SCALES
from tests.studies.paper import InThisProcess

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def quick(quick_in_workers: Reproduction, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    monkeypatch.setattr("manyheads.studies.paper.runner.ProcessPoolExecutor", InThisProcess)
    return quick_in_workers


@pytest.fixture
def quick_in_workers(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    short = tiny.with_values(training={"steps": 6, "log_every": 3}, evaluate={"every": 3})
    cells = {"together": short, "alone": short.with_values(algorithm={"name": "separate"})}
    one = Reproduction(
        name="quick",
        title="A quick one",
        where="Table 0",
        cells=lambda scale: cells,
        measures=(SHARED, LAST),
        printed={("together", LAST.label): 54.5},
        claims=(Claim("Together is better.", [above(at("together", LAST), at("alone", LAST))]),),
    )
    monkeypatch.setitem(REPRODUCTIONS, "quick", one)
    return one


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder with ImageNet's classes, and noise for images."""
    folder, rng = tmp_path_factory.mktemp("imagenet"), np.random.default_rng(0)
    labels = np.arange(10_000) % 1000
    images = rng.integers(0, 256, size=(len(labels), 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "noise.npz", x_train=images, y_train=labels, x_test=images[:1000], y_test=labels[:1000])
    pack(DataConfig(source="npz", path=str(folder / "noise.npz")), folder / "packed", workers=1)
    return folder / "packed"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def refused(*arguments: str | Path) -> str:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert not list(Path().iterdir())
    return result.stderr.strip()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_in_workers")
def test_it_runs_in_workers() -> None:
    done = call("quick")
    assert done.exit_code == 0, done.output
    assert "2 runs to do, 0 stored" in done.output
    assert len(list(Path("runs/reproduce/results/digits").iterdir())) == 2


def test_it_runs_what_is_missing_judges_and_draws(quick: Reproduction) -> None:
    first = call("quick", "--only", "alone")
    assert first.exit_code == 0, first.output
    assert "1 run to do, 0 stored" in first.output
    assert "Together is better." not in first.output  # of one cell there is nothing to claim
    assert "Picture" not in first.output
    second = call("quick")
    assert "1 run to do, 1 stored" in second.output
    assert "(54.5)" in second.output
    assert "Together is better." in second.output
    assert Path("runs/reproduce/reproduce-quick-digits.png").exists()
    third = call("quick", "--page", "results.md")
    assert "0 runs to do, 2 stored" in third.output
    assert "## quick" in Path("results.md").read_text()
    assert Path("images/reproduce-quick-digits.png").exists()
    listed = call("quick", "--list").output
    assert re.search(r"\| together \|.*\| 0 +\|", listed)
    shown = call("quick", "--show").output
    assert "to do" not in shown
    assert "alone" in shown
    part = call("quick", "--show", "--only", "together").output
    assert "together" in part
    assert "alone" not in part
    assert "--list and --show run nothing" in call("quick", "--show", "--try", "2").stderr


def stopped_after_one(*arguments: Any, **options: Any) -> Iterator[Any]:
    yield next(run_all(*arguments, **options))
    raise Stopped("stopped")


def test_run_again_and_stopped_it_goes_on(quick: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("quick", "--again").exit_code == 0  # also where there is nothing yet
    stored = {path: path.stat().st_mtime_ns for path in Path("runs/reproduce/results/digits").iterdir()}
    with monkeypatch.context() as for_once:
        for_once.setattr("manyheads.studies.paper.command.run_all", stopped_after_one)
        first = call("quick", "--again", "--at-once", "1")
    assert first.exit_code == 130, first.output
    assert "2 runs to do, 0 stored" in first.output
    second = call("quick", "--again")
    assert "1 run to do, 1 were run again before this was stopped, 0 stored" in second.output
    assert all(path.stat().st_mtime_ns > before for path, before in stored.items())
    assert not list(Path("runs/reproduce/digits").glob("*.json"))
    assert "2 runs to do, 0 stored" in call("quick", "--again").output  # and all of it, if it is asked for once more


def test_what_was_stopped_elsewhere_is_not_skipped_or_forgotten(
    quick: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {name: cell.with_values(training={"steps": 9}) for name, cell in quick.cells(SCALES["digits"]).items()}
    monkeypatch.setitem(REPRODUCTIONS, "slow", replace(quick, name="slow", cells=lambda scale: other))
    with monkeypatch.context() as for_once:
        for_once.setattr("manyheads.studies.paper.command.run_all", stopped_after_one)
        assert call("quick", "--again", "--at-once", "1").exit_code == 130
    assert call("slow").exit_code == 0
    assert "2 runs to do, 0 stored" in call("slow", "--again").output
    assert "2 runs to do, 0 stored" in call("quick", "--again", "--results", tmp_path / "others").output
    assert "1 run to do, 1 were run again" in call("quick", "--again").output


def test_what_other_code_made_is_said(quick: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("quick", "--only", "alone").exit_code == 0
    made_by = code_of_numbers()
    assert "by other code" not in call("--list").output
    monkeypatch.setattr("manyheads.studies.paper.code_of_numbers.code_of_numbers", lambda: "later")
    assert "1 of 2, 1 by other code" in call("--list").output
    monkeypatch.setattr("manyheads.studies.paper.code_of_numbers.SAME_NUMBERS", ((made_by, "later"),))
    assert "by other code" not in call("--list").output


def test_what_is_stored_can_be_seen_without_the_data(quick: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("quick").exit_code == 0
    monkeypatch.setitem(SCALES, "digits", replace(SCALES["digits"], in_folder=True))
    again = call("quick", "--data", "nowhere")
    assert again.exit_code == 0, again.output
    assert "0 runs to do, 2 stored" in again.output


def test_one_cell_that_fails_does_not_hide_the_others(quick: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = quick.cells(SCALES["digits"])
    wild = cells["together"].with_values(training={"learning_rate": 1e6})
    monkeypatch.setitem(REPRODUCTIONS, "quick", replace(quick, cells=lambda scale: cells | {"together": wild}))
    result = call("quick")
    assert result.exit_code == 2
    assert "alone" in result.output
    assert "not run" in result.output
    assert "error: quick together, seed 0: step" in result.output


@pytest.mark.parametrize(
    ("name", "here"), [("Table 1", "baselines"), ("fig4", "heads"), ("Table 8", "heads"), ("Fig. 6", "topologies")]
)
def test_they_answer_to_what_the_paper_calls_them(name: str, here: str) -> None:
    assert f"{here}: none of it is stored" in call(name, "--show").output


def test_without_a_gpu_it_says_first_how_long_it_takes(quick: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyheads.studies.paper.command.estimated_seconds", lambda job: 5400.0)
    assert "hours" not in call("quick", "--only", "alone").output
    monkeypatch.setitem(SCALES, "digits", replace(SCALES["digits"], for_gpu=True))
    output = call("quick", "--only", "alone", "--again", "--device", "cpu").output
    assert output.index("About 1.5 hours on this hardware") < output.index("1/1 quick alone")


@pytest.mark.parametrize(
    ("name", "several"),
    [
        ("section 4.2.2", ["heads", "targets", "confidence", "self"]),
        ("4.2.2", ["heads", "targets", "confidence", "self"]),
        ("Appendix B.1", ["variants"]),
        ("app. b", ["variants", "public"]),
        ("Figs. 3-5", ["regularization", "heads", "topologies"]),
        ("Tables 1, 3 \N{EN DASH} 4", ["baselines", "variants", "public"]),
        ("sections 4.2.1-4.2.3", ["regularization", "heads", "targets", "confidence", "self"]),
    ],
)
def test_a_section_or_a_range_may_be_several_tables(name: str, several: list[str]) -> None:
    output = call(name, "--show").output
    assert all(f"{one}: none" in output for one in several)
    assert output.count(": none of it is stored") == len(several)


def test_the_paper_s_names_need_no_quotes_and_may_stand_beside_ours() -> None:
    output = call("Table", "5", "self", "\N{SECTION SIGN}4.5", "--show").output
    assert all(f"{one}: none" in output for one in ("self", "regularization", "heterogeneous"))
    assert output.count(": none of it is stored") == 3
    assert "--results REPOSITORY/experiments/mhd/results" in output
    assert refused("Table 12") == "error: Table 12: is not among what manyheads reproduce --list shows"
    assert "Figs. 5-3: is not among" in refused("Figs. 5-3")
    assert "Appendix C: is not among" in refused("Appendix C")
    assert "Table: unknown name" in refused("Table")


def test_a_cell_can_be_had_as_a_file_to_start_from(quick: Reproduction) -> None:
    printed = call("quick", "--only", "alone", "--toml").output
    cell = quick.cells(SCALES["digits"])["alone"]
    assert Experiment.from_toml(printed) == cell.with_values(evaluate={"every": cell.training.steps // 6})
    complete = call("quick", "--only", "together", "--toml").output
    unset = {"top_k": None, "average_every": None, "remember": None, "own_labels": None, "fit_every": None, "ask": None}
    assert cell_key(Experiment.from_toml(complete).with_values(algorithm=unset)) == cell_key(
        quick.cells(SCALES["digits"])["together"]
    )
    assert "nu_aux = " in complete
    assert refused("quick", "--toml") == 'error: --toml: say which cell with --only, such as "together"'


def test_cells_are_listed_with_what_makes_them_different() -> None:
    listed = " ".join(call("topologies", "--list").output.split())
    assert 'clients = 4, model.auxiliary_heads = 3, algorithm.pool_size = 4, graph.name = "cycle"' in listed


def test_results_do_not_go_into_a_run(quick: Reproduction) -> None:
    call("quick", "--only", "alone")
    (run,) = Path("runs/reproduce/digits").iterdir()
    assert f"error: --results {run}: is a run; give another folder" in call("quick", "--results", run).stderr
    assert not (run / "digits").exists()


def test_a_verification_that_was_stopped_outlives_one_of_other_names(quick: Reproduction) -> None:
    call("quick", "--only", "alone")
    left = Path("runs/reproduce/verified/digits/another")
    left.mkdir(parents=True)
    assert "1 of 1 gave exactly the stored numbers" in call("quick", "--verify").output
    assert left.is_dir()
    assert not (left.parent / "quick").exists()


def test_what_is_stored_can_be_verified(quick: Reproduction) -> None:
    assert "none of it is stored" in refused("quick", "--verify")
    assert "leave out --list, --show, --again, --keep and --try" in refused("quick", "--verify", "--again")
    call("quick", "--only", "alone", "--seeds", "2")
    stored = sorted(Path("runs/reproduce/results/digits").iterdir())
    checked = call("quick", "--verify")
    assert checked.exit_code == 0
    assert "quick alone, seed 1: exactly the stored numbers" in checked.output
    assert "2 of 2 gave exactly the stored numbers\n" in checked.output
    more = call("quick", "--verify", "--only", "alone", "--seeds", "3").output
    assert "2 of 2 gave exactly the stored numbers; another 1 are not stored" in more
    assert not Path("runs/reproduce/verified").exists()
    told = json.loads(stored[0].read_text())
    told["shared_accuracy"][0] += 0.0123
    stored[0].write_text(json.dumps(told))
    checked = call("quick", "--verify", "--seeds", "1")
    assert checked.exit_code == 2
    assert "numbers other than the stored ones (different: shared_accuracy)" in " ".join(checked.output.split())
    assert "means over clients differ by at most 1.2 points, single accuracies by 1.2" in " ".join(
        checked.stderr.split()
    )
    assert "other-numbers/" in checked.stderr
    assert len(list(Path("runs/reproduce/other-numbers/digits/quick").iterdir())) == 1
    told["shared_accuracy"][0] -= 0.0123
    told["clients"][0]["private_accuracy"][0] += 0.5
    told["rounding"], told["code"] = "upwards", "no code of ours"
    stored[0].write_text(json.dumps(told))
    checked = call("quick", "--verify")
    assert checked.exit_code == 2
    assert "0 points, single accuracies by 50. A processor that rounds differently" in " ".join(checked.stderr.split())
    said, here = " ".join(checked.output.split()), processor_name()
    assert f"(stored by other code, no code ; stored by {here} (rounding upwards), plain" in said
    assert f"now by {here} (rounding {rounding()}), plain" in said
    assert torch.backends.cpu.get_cpu_capability() in here
    assert "different: clients)" in said
    assert "1 of 2 gave numbers other than the stored ones" in checked.stderr
    assert json.loads(stored[0].read_text()) == told  # nothing that is stored is replaced


def test_a_verification_removes_only_what_it_made(quick: Reproduction) -> None:
    call("quick", "--only", "alone")
    (stored,) = Path("runs/reproduce/results/digits").iterdir()
    told = json.loads(stored.read_text())
    told["shared_accuracy"][0] += 0.0123
    stored.write_text(json.dumps(told))
    own = [
        Path(f"runs/reproduce/{place}/digits/quick/{name}")
        for place in ("verified", "other-numbers")
        for name in ("thesis.txt", "table.json")
    ]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[1, 2]")
    for _ in range(2):
        assert "1 of 1 gave numbers other" in call("quick", "--verify").stderr
        assert all(path.read_text() == "[1, 2]" for path in own)
        assert len(list(own[-1].parent.iterdir())) == 3
        assert len(list(own[0].parent.iterdir())) == 2


def test_a_damaged_list_of_what_was_run_again(quick: Reproduction) -> None:
    place = Path("runs/reproduce/digits/again.json")
    place.parent.mkdir(parents=True)
    for text in ("", "[" * 100_000, "[]", '{"a": 1}'):
        place.write_text(text)
        result = call("quick", "--again", "--only", "alone")
        assert result.exit_code == 2
        assert "again.json: does not say what was run again; remove it" in result.stderr


def test_stored_results_of_other_data_are_not_passed_off(
    quick: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    for name in ("mine", "yours"):
        images = rng.integers(0, 256, size=(200, 8, 8, 1), dtype=np.uint8)
        (tmp_path / name).mkdir()
        labels = np.arange(200) % 10
        np.savez(tmp_path / name / "it.npz", x_train=images, y_train=labels, x_test=images[:50], y_test=labels[:50])
    digits = SCALES["digits"]
    read = digits.mhd.with_values(data={"source": "npz", "path": "it.npz"})
    monkeypatch.setitem(SCALES, "digits", replace(digits, mhd=read, in_folder=True))
    cells = {
        cell: experiment.with_values(data={"source": "npz", "path": "it.npz"})
        for cell, experiment in quick.cells(SCALES["digits"]).items()
    }
    monkeypatch.setitem(REPRODUCTIONS, "quick", replace(quick, cells=lambda scale: cells))
    first = call("quick", "--data", tmp_path / "mine").output
    assert "2 runs to do, 0 stored" in first
    assert "other data" not in first + call("quick", "--data", tmp_path / "mine").output
    again = call("quick", "--data", tmp_path / "yours").output
    assert "2 of these stored results were made from data other" in " ".join(again.split())
    assert "2 of these stored" in " ".join(call("quick", "--show", "--data", tmp_path / "yours").output.split())
    assert "0 runs to do, 2 stored" in again


def test_everything_is_listed() -> None:
    output = call("--list", "--scale", "cifar100").output
    assert all(name in output for name in REPRODUCTIONS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "NAME: missing; manyheads reproduce --list shows what there is"),
        (["hedas"], 'hedas: unknown name; did you mean "heads"?'),
        (["Table 12"], "Table 12: is not among"),
        (["--page", "."], "--page .: give a Markdown file, such as results.md"),
        (["--page", "mine.toml"], "--page mine.toml: give a Markdown file, such as "),
        (["heads", "--scale", "cifar"], '--scale cifar: unknown scale; did you mean "cifar100"?'),
        (["heads", "--only", "s = 100, 5 heads"], '--only "s = 100, 5 heads": there is no such cell'),
        (
            ["fedmd", "--scale", "imagenet"],
            "fedmd: there is no such table at scale imagenet; use --scale digits or cifar100",
        ),
        (["heads", "--scale", "cifar100"], "cifar100.npz: not there; give its folder with --data"),
        (["heads", "--scale", "imagenet"], "--data: missing; give the folder that `manyheads pack` made"),
        (["heads", "--scale", "imagenet", "--data", "nowhere"], "--data nowhere: not packed; first: manyheads pack"),
        (["all", "--only", "s = 100, 5 heads"], '--only "s = 100, 5 heads": there is no such cell'),
        (["heads", "--engine", "cdua"], 'unknown engine; did you mean "cuda"?'),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[str], says: str) -> None:
    line = refused(*arguments)
    assert says in line
    assert line.startswith("error: ")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--page", "x"], "--page x: give a Markdown file, such as x/results.md"),
        (["--page", "../pipe.md"], "--page ../pipe.md: give a Markdown file"),
        (["--try", "2", "--at-once", "1000000000"], "--at-once 1000000000: at most 1,024"),
    ],
)
def test_mistakes_are_found_before_anything_is_run(quick: Reproduction, arguments: list[str], says: str) -> None:
    os.mkfifo("../pipe.md")
    assert says in refused("quick", *arguments)


@pytest.mark.usefixtures("each_model_once")
@pytest.mark.parametrize("name", [name for name, one in REPRODUCTIONS.items() if "imagenet" in one.scales])
def test_the_papers_settings_load_and_check_on_a_packed_folder(name: str, stand_in: Path) -> None:
    scale = SCALES["imagenet"]
    first, *_ = cells = list(REPRODUCTIONS[name].cells(scale).values())
    loaded = resolve(scale.with_data(first, stand_in))
    assert loaded.dataset.classes == 1000
    resolve(scale.with_data(cells[-1], stand_in), loaded=loaded)


def test_they_start_and_say_how_long_they_take(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps with two small clients: eight ResNet-34 with batches of 512 are not for a test on a CPU."""
    scale = SCALES["imagenet"]
    less = {
        "clients": 2,
        "training": {"batch_size": 8, "public_batch_size": 8},
        "model": {"backbone": "resnet8", "width": 4},
    }
    mhd = scale.with_data(scale.mhd.with_values(**less), stand_in)
    job = Job("baselines s = 100, MHD", "imagenet", mhd, tmp_path / "run", ResolvedOptions("plain"))
    command.try_cells(Screen(quiet=True), [job], 2)
    assert "1/1 baselines s = 100, MHD: 2 steps in" in capsys.readouterr().out
    assert "hours on this hardware" in command.estimate_text([job])

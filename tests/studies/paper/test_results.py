"""A result is found again by what made it: the configuration and the code that decides numbers."""

import json
import math
import shutil
from pathlib import Path

import pytest

import manyheads
from manyheads import Experiment, train
from manyheads.errors import RunError
from manyheads.studies.paper import code_of_numbers as module
from manyheads.studies.paper.code_of_numbers import code_of_numbers, oldest_equivalent, same_numbers, without_comments
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.results import MEASURED, CellResult, read_results, result_of, write_result
from manyheads.studies.paper.verify import why_elsewhere
from tests.studies.paper import make_result

ROOT = Path(__file__).parents[3]
CIFAR = Experiment(clients=2, data={"source": "npz", "path": "cifar100.npz"})


def test_the_key_is_about_numbers_only() -> None:
    same = [
        CIFAR.with_values(seed=5),
        CIFAR.with_values(data={"path": "/elsewhere/cifar100.npz"}),
        CIFAR.with_values(training={"save_seconds": 5.0, "log_every": 7}),
        CIFAR.with_values(evaluate={"every": 3}),
    ]
    assert {cell_key(experiment) for experiment in same} == {cell_key(CIFAR)}
    others = [
        CIFAR.with_values(clients=3),
        CIFAR.with_values(data={"skew": 0.0}),
        CIFAR.with_values(training={"steps": 5}),
        CIFAR.with_values(evaluate={"probe": True}),
        CIFAR.with_values(algorithm={"nu_aux": 1.0}),
    ]
    assert len({cell_key(CIFAR), *map(cell_key, others)}) == 1 + len(others)


def test_what_is_said_by_default_need_not_be_said() -> None:
    said = CIFAR.with_values(
        algorithm={"targets_per_step": 1, "ramp": {"hold": 0.0, "rise": 0.0}, "exchange": "weights"},
        graph={"name": "complete"},
        data={"skew": 100.0},
    )
    assert cell_key(said) == cell_key(CIFAR)
    assert cell_key(CIFAR.with_values(algorithm={"ramp": {"hold": 0.1, "rise": 0.4}})) != cell_key(CIFAR)


def test_where_the_public_set_lies_does_not_matter() -> None:
    def of(path: str, source: str = "npz") -> str:
        return cell_key(CIFAR.with_values(data={"public": {"source": source, "path": path}}))

    assert of("a.npz") == of("b.npz")
    assert of("a.npz") != of("a", "folder")


CODE = '''"""What it is."""

import math  # for pi

def area(r: float) -> float:
    """Of a circle."""
    # Not of a ball.
    return math.pi * r * r  # exactly
'''


def test_comments_docstrings_and_empty_lines_do_not_decide_numbers() -> None:
    assert without_comments(CODE) == "import math\ndef area(r: float) -> float:\n    return math.pi * r * r"
    assert without_comments(CODE.replace("Of a circle", "Of a disc").replace("exactly", "about")) == without_comments(
        CODE
    )
    assert without_comments(CODE.replace("r * r", "r * r * r")) != without_comments(CODE)


def test_a_string_that_looks_like_a_comment_stays() -> None:
    assert without_comments('x = "# not one"  # one\ny = f"{x}#"\n') == 'x = "# not one"\ny = f"{x}#"'


def test_the_hash_is_of_code_that_decides_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(code_of_numbers()) == 16
    shutil.copytree(Path(manyheads.__file__).parent, tmp_path / "manyheads")
    monkeypatch.setattr(module, "files", lambda package: tmp_path / package)

    def with_line(line: str, path: str) -> str:
        with (tmp_path / "manyheads" / path).open("a") as file:
            file.write(f"\n{line}\n")
        return code_of_numbers.__wrapped__()

    assert with_line("# a comment", "engine/worker.py") == code_of_numbers()
    assert with_line("X = 1", "cli/runs.py") == code_of_numbers()
    assert with_line("X = 1", "evaluation/probe.py") != code_of_numbers()


def test_code_that_only_got_faster_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = code_of_numbers()
    monkeypatch.setattr(module, "SAME_NUMBERS", (("slow", now), ("other", "another")))
    assert same_numbers(now)
    assert same_numbers("slow")
    assert not same_numbers("other")  # they are equal to each other, not to today's
    assert [oldest_equivalent(code) for code in (now, "slow", "another", "new")] == ["slow", "slow", "other", "new"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    result = make_result(0.5, seed=3, key="abc", seconds=1.25)
    path = write_result(tmp_path, result)
    assert path.relative_to(tmp_path).as_posix() == "digits/heads-s-100-seed-3-abc.json"
    assert read_results(tmp_path, "digits") == {("abc", 3): result}
    assert read_results(tmp_path, "cifar100") == {}


def test_what_was_read_is_written_as_it_was(tmp_path: Path) -> None:
    for path in sorted((ROOT / "experiments" / "mhd" / "results" / "cifar100").glob("self-*.json")):
        result = CellResult.model_validate_json(path.read_bytes())
        assert write_result(tmp_path, result).read_bytes() == path.read_bytes()


def test_processors_are_alike_that_round_alike_and_by_name_where_nobody_asked() -> None:
    mine, yours = make_result(0.5, rounding="up"), make_result(0.5, rounding="up", hardware="an abacus")
    earlier, elsewhere = make_result(0.5), make_result(0.5, hardware="an abacus")
    assert mine.rounds_like(yours)
    assert not mine.rounds_like(make_result(0.5, rounding="down"))
    assert not mine.rounds_like(make_result(0.5, rounding="up", torch="1"))
    assert mine.rounds_like(earlier)
    assert not mine.rounds_like(elsewhere)
    assert why_elsewhere(mine, yours) == ""
    said = why_elsewhere(mine, make_result(0.5, rounding="down"))
    assert said.startswith("stored by a laptop (rounding up), plain engine, float32, torch 0, now by a laptop (round")
    assert why_elsewhere(earlier, mine) == "the stored ones do not say how their processor rounds"
    assert why_elsewhere(earlier, elsewhere).startswith("stored by a laptop, plain")


def test_a_cell_is_stored_once_whoever_ran_it(tmp_path: Path) -> None:
    write_result(tmp_path, make_result(0.5, key="abc", code="earlier"))
    newer = make_result(0.6, key="abc", code="now", cell="baselines MHD")
    path = write_result(tmp_path, newer)
    assert list((tmp_path / "digits").iterdir()) == [path]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shared_accuracy", [0.5, math.nan]),
        ("shared_accuracy", [0.5, "nan"]),
        ("private_accuracy", [math.inf]),
        ("private_accuracy", []),
        ("seconds", math.nan),
        ("experiment", {"data": [1]}),
        ("experiment", {"algorithm": "mhd"}),
    ],
)
def test_values_that_no_cell_has_are_refused(tmp_path: Path, key: str, value: object) -> None:
    path = write_result(tmp_path, make_result(0.5))
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(RunError, match=r"heads-s-100-seed-0-0.json: not the result of a cell"):
        read_results(tmp_path, "digits")


@pytest.mark.parametrize("text", ["", "{", "{}", '{"cell": "x"}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = write_result(tmp_path, make_result(0.5))
    path.write_text(text)
    with pytest.raises(RunError, match=r"heads-s-100-seed-0-0.json: not the result of a cell"):
        read_results(tmp_path, "digits")


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    path = write_result(tmp_path, make_result(0.5))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"typed": "by hand"}))
    with pytest.raises(RunError, match='has "typed", which this version of manyheads does not know; use a newer one'):
        read_results(tmp_path, "digits")


def test_another_cell_whose_key_begins_alike_stays(tmp_path: Path) -> None:
    first = write_result(tmp_path, make_result(0.5, key="abcdef12"))
    second = write_result(tmp_path, make_result(0.6, key="abcdef34", cell="baselines MHD"))
    assert first.exists()
    assert second.exists()


def test_how_far_results_are_apart_is_told_number_by_number() -> None:
    one, two = make_result(0.5, heads=2), make_result(0.5, heads=2, probe=[0.1])
    assert one.largest_difference(two, MEASURED) == 0.0  # what only one of them has is no distance
    assert one.largest_difference(make_result(0.53, heads=2), MEASURED) == pytest.approx(0.03)
    assert one.largest_difference(make_result(0.53, heads=2), ["private_accuracy"]) == 0.0


@pytest.mark.parametrize("balance", [0.0, 1.0])
def test_a_result_holds_what_validation_measured(tiny: Experiment, tmp_path: Path, balance: float) -> None:
    cell = tiny.with_values(training={"steps": 4, "balance": balance}, evaluate={"every": 4})
    train(cell, tmp_path / "run")
    result = result_of(cell, tmp_path / "run", cell="a cell", scale="digits", hardware="a machine", rounding=None)
    assert result.validation is not None
    measured = {"private_accuracy", "shared_accuracy"} | ({"private_with_prior"} if balance else set())
    assert result.validation.keys() == measured

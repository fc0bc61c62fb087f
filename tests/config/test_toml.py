"""TOML files and `--set` that make no experiment: one line says why."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads import ConfigurationError, Experiment
from manyheads.cli.commands import app
from manyheads.config.toml import parse

GOOD = 'clients = 2\n[data]\nsource = "digits"\n'
DEEP = {
    "lists": f"x = {'[' * 100_000}{']' * 100_000}\n",
    "a few lists": f"x = {'[' * 17}{']' * 17}\n",
    "tables": f"x = {'{a=' * 5_000}1{'}' * 5_000}\n",
    "dotted keys": f"{'a.' * 1_000}b = 1\n",
    "headers": f"[{'.'.join('a' * 1_000)}]\n",
}
LARGE = {
    "digits": f"x = {'9' * 5_000}\n",
    "hexadecimal digits": f"x = 0x{'f' * 5_000}\n",
    "a little more than 64 bits": f"x = {2**63}\n",
    "in a list": f"x = [[1, -{2**63 + 1}]]\n",
    "in a table": "x = {y = {z = 1000000000000000000000000000000}}\n",
}


def refusal(*overrides: str, text: str = GOOD) -> str:
    with pytest.raises(ConfigurationError) as error:
        Experiment.from_toml(text, "a.toml", overrides)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 400
    return str(error.value)


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_is_nested_deeply(text: str) -> None:
    assert refusal(text=text + GOOD) == "a.toml: not valid TOML: nested more than 16 levels deep"


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_numbers_that_are_too_large(text: str) -> None:
    line = refusal(text=text + GOOD)
    assert line.startswith("a.toml: not valid TOML: ")
    assert line.endswith("a number of more than 64 bits")


MANY_DOTS = {
    "a key": f"{'a.' * 100_000}b = 1\n",
    "a header": f"[{'a.' * 100_000}b]\n",
    "quoted parts": '"=".' * 100_000 + "b = 1\n",
    "many keys": 200 * f"{'a.' * 1_000}b = 1\n",
}


@pytest.mark.parametrize("text", MANY_DOTS.values(), ids=MANY_DOTS)
def test_what_python_would_read_for_minutes(text: str) -> None:
    assert "a.toml: not valid TOML: too many dots in a line; " in refusal(text=text + GOOD)


def test_a_value_that_python_would_read_for_minutes() -> None:
    assert "the value is not valid TOML: too many dots in a line; " in refusal(f"seed={{{'a.' * 100_000}b = 1}}")


def test_long_lists_are_read() -> None:
    assert len(parse(f"x = [{', '.join(['0.5'] * 9_000)}]")["x"]) == 9_000
    lines = ",\n".join(["'models/client.safetensors'"] * 50_000)
    assert len(parse(f"x = [\n{lines}\n]")["x"]) == 50_000


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(ConfigurationError, match=r"long\.toml: more than 8 MB"):
        Experiment.load(path)
    assert "more than 8 MB" in refusal(text=" " * (9 << 20) + GOOD)


def test_the_key_of_a_large_number_is_named() -> None:
    assert "data.public.x: a number" in refusal(text=f"{GOOD}public = {{x = {2**64}}}")


def test_what_may_be_nested_is(tiny: Experiment) -> None:
    phases = "[graph]\nname = 'phases'\nphases = [{name = 'edges', edges = [[0, 1], [1, 0]]}]\n"
    assert parse(GOOD + phases)["graph"]["phases"][0]["edges"] == [[0, 1], [1, 0]]
    assert parse(f"x = {2**63 - 1}")["x"] == 2**63 - 1


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("training.steps=5\nseed=3", "several lines; give each key a --set of its own"),
        ("training.steps=5\r\nseed=3", "several lines"),
        ("training.steps=5\n[model]\nwidth=3", "several lines"),
        ("graph.name=cycle\nseed=3", "not valid TOML"),
        (f"seed={'9' * 5_000}", "a number of more than 64 bits"),
        (f"seed=0x{'f' * 5_000}", "a number of more than 64 bits"),
        (f"training.steps={10**30}", "a number of more than 64 bits"),
        (f"seed={'[' * 100_000}", "nested more than 16 levels deep"),
        (f"{'a.' * 20_000}b=1", "nested more than 16 levels deep"),
        (f"{'a' * 100_000}", "write it as key.path=value"),
    ],
)
def test_overrides(override: str, reason: str) -> None:
    line = refusal(override)
    assert line.startswith("--set ")
    assert reason in line


def test_one_value_may_have_several_lines() -> None:
    overrides = ["data.classes=[\n 3,\n 4]", "seed=3 # the third", "graph.name=cycle\n"]
    made = Experiment.from_toml(GOOD, "a.toml", overrides)
    assert made.data.classes == [3, 4]
    assert made.seed == 3
    assert made.graph.name == "cycle"


@pytest.mark.parametrize("command", ["run", "split"])
def test_on_the_command_line(tmp_path: Path, command: str) -> None:
    for number, text in enumerate((*DEEP.values(), *LARGE.values())):
        file = tmp_path / f"{number}.toml"
        file.write_text(text + GOOD)
        result = CliRunner().invoke(app, [command, str(file)])
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: {file}: not valid TOML: ")
        assert len(result.stderr.splitlines()) == 1

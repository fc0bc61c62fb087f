"""Names that would do something to a terminal, a table, a picture or a file: they are shown, and do nothing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from manyheads import Experiment, load_model
from manyheads.cli.commands import app
from tests.conftest import TINY

CLASSES = (b"caf\xe9", b"clear\x1b[2J\x07", b"two\nerror: lines", b"[.b] [red]m $a_{$ :dog:", "中文".encode())


def call(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def harmless(text: str) -> None:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text), ascii(text)
    assert not re.search("^error", text, re.MULTILINE)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.chdir(tmp_path)
    data: dict[str, Any] = TINY["data"] | {"source": "folder", "path": "images", "primary_labels": {"per_client": 2}}
    training = TINY["training"] | {"steps": 4, "batch_size": 4, "public_batch_size": 4}
    return Experiment(**TINY | {"data": data, "training": training, "evaluate": {"every": 4}})


def make_classes(root: Path, samples: int) -> None:
    for number, name in enumerate(CLASSES):
        folder = root / name.decode(errors="surrogateescape")
        folder.mkdir(parents=True)
        for sample in range(samples):
            Image.new("L", (8, 8), 40 * number + sample).save(folder / f"{sample}.png")


def test_class_folders_with_any_name(small: Experiment) -> None:
    """Bytes that are not UTF-8, escape sequences, new lines, markup, formulas, letters that no font has."""
    make_classes(Path("images/train"), 12)
    make_classes(Path("images/test"), 4)
    Path("images/train", CLASSES[0].decode(errors="surrogateescape"), "a\x1b\udcff.txt").touch()
    Path("tiny.toml").write_text(str(small))
    outputs = [call(*line) for line in (("split", "tiny.toml"), ("run", "tiny.toml"), ("export", "runs/tiny"))]
    for output in outputs:
        harmless(output)
    for name in (r"caf\udce9", r"clear\x1b[2J\x07", r"two\nerror: lines", "[.b] [red]m $a_{$ :dog:", "中文"):
        assert name in outputs[0]
    assert r"a\x1b\udcff.txt" in outputs[0]
    assert r"caf\udce9" in load_model("runs/tiny/exports/client-0").class_names
    for file in Path("runs/tiny").rglob("*.json*"):
        harmless(file.read_text())
    assert len(list(Path("runs/tiny/plots").glob("*.png"))) == 6


def test_a_class_is_asked_for_by_the_name_that_is_shown(small: Experiment) -> None:
    make_classes(Path("images/train"), 12)
    make_classes(Path("images/test"), 4)
    chosen = small.with_values(data={"classes": [r"caf\udce9", "中文", r"two\nerror: lines"]})
    Path("tiny.toml").write_text(str(chosen))
    assert r"caf\udce9" in call("split", "tiny.toml")


def test_clients_with_any_name(small: Experiment) -> None:
    for name in (b"\x1b]0;owned\x07", b"line\nerror: one", b"\xff[/b]".replace(b"/", b".")):
        make_classes(Path("images", name.decode(errors="surrogateescape")), 12)
    data = {"source": "clients", "public": "fraction"}
    Path("tiny.toml").write_text(str(small.with_values(data=data)))
    for line in (("split", "tiny.toml"), ("run", "tiny.toml"), ("compare", "runs/tiny")):
        harmless(call(*line))
    names = [client["name"] for client in json.loads(Path("runs/tiny/summary.json").read_text())["clients"]]
    assert sorted(names) == sorted([r"\x1b]0;owned\x07", r"line\nerror: one", r"\udcff[.b]"])


def test_class_names_of_an_array_file(small: Experiment) -> None:
    """Markup that is not closed, and a name that no picture is wide enough for."""
    names = np.array(["[/b]", "[bold]", "x" * 20_000, "\x9b2J", "e"])
    arrays: dict[str, Any] = {f"x_{part}": np.zeros((60, 8, 8), np.uint8) for part in ("train", "test")}
    labels: dict[str, Any] = {f"y_{part}": np.arange(60) % 5 for part in ("train", "test")}
    np.savez("made.npz", class_names=names, **arrays, **labels)
    Path("tiny.toml").write_text(str(small.with_values(data={"source": "npz", "path": "made.npz"})))
    for line in (("split", "tiny.toml"), ("run", "tiny.toml")):
        harmless(call(*line))


def test_packed_images_with_any_name(small: Experiment) -> None:
    make_classes(Path("images/train"), 12)
    bad = Path("images/train", CLASSES[0].decode(errors="surrogateescape"), "a\x1b\udcff.png")
    bad.touch()
    said = call("pack", "images", "packed")
    harmless(said)
    assert r"a\x1b\udcff.png: is empty" in said
    harmless(Path("packed/pack.json").read_text())


def test_an_error_is_one_line_whatever_it_names(small: Experiment) -> None:
    for path in ("\x1b[2J\nforged", "\udcff"):
        result = CliRunner().invoke(app, ["split", path])
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        harmless(result.stderr.removeprefix("error: "))

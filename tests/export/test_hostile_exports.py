"""Exports that somebody changed: refused in one line, before anything large is made of them."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from manyheads import Experiment, ManyheadsError, RunError, load_model, train
from manyheads.export.write import export
from tests.conftest import TINY
from tests.test_files import at_once


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "run"
    train(Experiment(**TINY), place)
    return place


@pytest.fixture
def model(run: Path, tmp_path: Path) -> Path:
    export(run, 0, tmp_path / "model")
    return tmp_path / "model"


def change(model: Path, /, **changes: Any) -> None:
    path = model / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def put_tensors(model: Path, tensors: dict[str, Tensor]) -> None:
    content = safetensors.torch.save(tensors)
    (model / "model.safetensors").write_bytes(content)
    change(model, sha256=hashlib.sha256(content).hexdigest())


def refused(model: Path) -> str:
    with pytest.raises(ManyheadsError) as error:
        load_model(model)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1_000
    return str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": "3"},
        {"heads": 0},
        {"heads": 3.0},
        {"heads": True},
        {"heads": 10**30},
        {"classes": 5},
        {"classes": []},
        {"classes": [1, 2]},
        {"classes": {"a": 1}},
        {"image_shape": [8, 8]},
        {"image_shape": [8, 8, -1]},
        {"image_shape": [8, 8, 10**12]},
        {"image_shape": "8x8x1"},
        {"deploy": []},
        {"deploy": {"private": 0}},
        {"deploy": {"private": 0, "shared": 9}},
        {"deploy": {"private": 0, "shared": "2"}},
        {"model": None},
        {"model": []},
        {"model": {"backbone": ["cnn", "cnn"]}},
        {"model": {"backbone": "cnn", "width": [4, 4]}},
        {"model": {"backbone": "cnn", "width": -4}},
        {"model": {"backbone": "cnn", "width": "4"}},
        {"model": {"backbone": "cnn", "more": 1}},
        {"model": {"backbone": 5}},
        {"client": "0"},
        {"name": None},
        {"sha256": 5},
    ],
    ids=str,
)
def test_wrong_types(model: Path, changes: dict[str, Any]) -> None:
    change(model, **changes)
    assert "model.json: not the description of an exported model" in refused(model)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "[" * 100_000, '{"name": ' * 100_000, '{"heads": 1' + "0" * 5_000 + "}", "\udcff"]
)
def test_what_is_no_description(model: Path, text: str) -> None:
    (model / "model.json").write_text(text, errors="surrogateescape")
    assert "model.json: not the description of an exported model" in refused(model)


@pytest.mark.parametrize("changes", [{"heads": 10_000}, {"model": {"backbone": "resnet50", "width": 60_000}}], ids=str)
def test_a_model_larger_than_its_file_is_not_made(
    model: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object, **__: object) -> None:
        raise AssertionError("memory was asked for")

    monkeypatch.setattr(torch.nn.Module, "to_empty", made)
    change(model, **changes)
    assert "holds more numbers than there are to fill it with" in refused(model)


WRONG: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "one is missing": lambda tensors: dict(list(tensors.items())[1:]) | {"else": tensors["heads.weight"].clone()},
    "one too many": lambda tensors: tensors | {"else": torch.zeros(1)},
    "other shape": lambda tensors: tensors | {"heads.weight": tensors["heads.weight"].T.contiguous()},
    "other type": lambda tensors: tensors | {"heads.weight": tensors["heads.weight"].double()},
    "nothing": lambda tensors: {},
    "not a number": lambda tensors: tensors | {"heads.weight": torch.full_like(tensors["heads.weight"], torch.nan)},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_tensors(model: Path, wrong: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    put_tensors(model, wrong(safetensors.torch.load_file(model / "model.safetensors")))
    says = ("does not fit its model", "which its model does not have", "is not finite", "more numbers than there are")
    assert any(text in refused(model) for text in says)


@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
def test_a_pipe_is_not_waited_for(model: Path, file: str) -> None:
    (model / file).unlink()
    os.mkfifo(model / file)
    assert f"{file}: cannot be read: is not a file" in refused(model)


def test_a_linked_file_is_read(model: Path, tmp_path: Path) -> None:
    """Caches of downloads are made of links; nothing is written here."""
    for file in ("model.json", "model.safetensors"):
        shutil.move(model / file, tmp_path / file)
        (model / file).symlink_to(tmp_path / file)
    load_model(model)


def test_an_export_that_fails_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> str:
        raise RunError("no card today")

    monkeypatch.setattr("manyheads.export.write.card_text", failing)
    with pytest.raises(RunError, match="no card today"):
        export(run, 0, tmp_path / "a" / "model")
    assert not list(tmp_path.iterdir())


def test_of_two_exports_to_one_place_one_is_there(run: Path, tmp_path: Path) -> None:
    def one(client: int) -> None:
        export(run, client, tmp_path / "model")

    refusals = at_once(2, one)
    assert [type(error) for error in refusals] == [RunError]
    load_model(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]

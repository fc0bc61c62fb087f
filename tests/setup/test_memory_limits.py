"""Sizes beyond any memory are refused before anything is allocated, with the key, what it needs and what there is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from manyheads import ConfigurationError, DataError, Experiment, TrainingError, train
from manyheads.cli.commands import app
from manyheads.data.loading import load
from manyheads.data.pack import pack
from manyheads.engine.failure import RemoteError, attempted
from manyheads.memory import check_memory, enough_memory, machine_memory
from manyheads.models import client_model
from manyheads.setup.build import assemble
from manyheads.setup.resolve import resolve
from tests.conftest import TINY
from tests.data.made import class_folders, data


def small_machine(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for place in ("memory", "setup.models"):
        monkeypatch.setattr(f"manyheads.{place}.machine_memory", lambda: size)


def refusal(given: Experiment, kind: type[Exception] = ConfigurationError) -> str:
    with pytest.raises(kind) as error:
        assemble(given)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "clients": ({"clients": 10**9}, "less than or equal to 100000"),
    "data.size": ({"data": {"size": 10**9}}, "from 1 to 16,384"),
    "data.size = ": ({"data": {"size": [8, 10**30]}}, "from 1 to 16,384"),
    "data.public_views": ({"data": {"public_views": 65_537}}, "less than or equal to 65536"),
    "data.skew": ({"data": {"skew": 1e300}}, "from 0 to 1e+09, or inf"),
    "data.alpha": ({"data": {"alpha": 1e300}}, "less than or equal to 1000000000"),
    "model.width": ({"model": {"width": 10**9}}, "from 1 to 65,536"),
    "model.width = [": ({"model": {"width": [4, 4, 10**30]}}, "from 1 to 65,536"),
    "model.auxiliary_heads": ({"model": {"auxiliary_heads": 10**9}}, "less than or equal to 1000"),
    "algorithm.pool_size": ({"algorithm": {"pool_size": 10**9}}, "less than or equal to 100000"),
    "algorithm.targets_per_step": ({"algorithm": {"targets_per_step": 10**9}}, "less than or equal to 100000"),
    "training.steps": ({"training": {"steps": 10**9}}, "less than or equal to 10000000"),
    "training.batch_size": ({"training": {"batch_size": 10**9}}, "at most"),
    "training.public_batch_size": ({"training": {"public_batch_size": 10**9}}, "at most"),
    "data.primary_labels.per_client": ({"data": {"primary_labels": {"per_client": 10**9}}}, "at most 10"),
}


@pytest.mark.parametrize("key", LIMITS)
def test_a_key_that_is_too_large(key: str) -> None:
    values, allowed = LIMITS[key]
    with pytest.raises(ConfigurationError) as error:
        resolve(Experiment(**TINY).with_values(**values))
    assert key in str(error.value)
    assert allowed in str(error.value)


# Of a machine that is too small for an experiment which its keys allow.
GIGABYTE, MEGABYTE = 10**9, 10**6
NEEDS: dict[str, tuple[int, dict[str, Any], str]] = {
    "a model": (
        4 * GIGABYTE,
        {"model": {"width": 65_536}},
        "model.width = 65536, model.auxiliary_heads = 2: such a cnn for images of 8 x 8 does not fit into memory (its "
        "weights would take 1,5",
    ),
    "heads": (
        GIGABYTE,
        {"model": {"auxiliary_heads": 1_000, "width": 2_048}, "data": {"size": 8}},
        "model.width = 2048, model.auxiliary_heads = 1000: such a cnn",
    ),
    "a pass": (
        GIGABYTE // 2,
        {"data": {"size": 300}, "model": {"width": 512}},
        "model.width = 512, model.auxiliary_heads = 2: such a cnn for images of 300 x 300 does not fit into memory (a "
        "pass of two images would take 0.6 GB, and this machine has 0.5 GB)",
    ),
    "all clients": (
        2 * MEGABYTE,
        {"clients": 30, "model": {"width": 16}},
        "clients = 30, model.width = 16: the weights, gradients and momentum of all clients would take",
    ),
    "a step": (
        2 * MEGABYTE,
        {"training": {"batch_size": 800, "public_batch_size": 300}},
        "training.batch_size = 800, public_batch_size = 300: what a step keeps for its backward pass would take",
    ),
    "what is remembered": (
        3 * MEGABYTE,
        {"model": {"auxiliary_heads": 60}, "algorithm": {"remember": 0.9}},
        "algorithm.remember = 0.9: what 3 clients remember of 431 public samples would take 0.0 GB, and this machine "
        "has 0.0 GB; set it to 0, or lower model.auxiliary_heads",
    ),
    "a window": (
        20 * MEGABYTE,
        {
            "training": {"steps": 100_000, "log_every": 10**12},
            "evaluate": {"every": 10**12},
            "algorithm": {"pool_every": 99_999},
        },
        "training.log_every = 1000000000000, batch_size = 16: the draws for 99,999 steps would take 0.1 GB",
    ),
    "rows": (
        100 * MEGABYTE,
        {"data": {"public_views": 65_536}, "algorithm": {"exchange": "predictions"}},
        "data.public_views = 65536: a list of all public rows would take 0.2 GB, and this machine has 0.1 GB; lower it",
    ),
    "pairs": (MEGABYTE, {"clients": 150}, "clients = 150: the accuracy of every client on the data of every client"),
    "a graph": (MEGABYTE, {"clients": 400}, "the edges of a complete graph of 400 would take"),
}


@pytest.mark.parametrize("case", NEEDS)
def test_what_this_machine_cannot_hold(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size, values, line = NEEDS[case]
    small_machine(monkeypatch, size)
    assert line in refusal(Experiment(**TINY).with_values(**values))


def test_what_is_remembered_is_counted_to_the_byte(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny.with_values(model={"auxiliary_heads": 60}, algorithm={"remember": 0.9})
    ensemble = assemble(experiment)
    for client in ensemble.clients:
        ensemble.resolved.algorithm.plan(client, 0, 1)
    needed = sum(kept.nbytes for client in ensemble.clients for kept in client.memory.values())
    assert needed > 4 * MEGABYTE
    small_machine(monkeypatch, needed)
    assemble(experiment)
    small_machine(monkeypatch, needed - 1)
    assert refusal(experiment).startswith("algorithm.remember = 0.9: ")
    for knobs in ({"remember": 0.0}, {"select": "most_confident"}):
        assemble(experiment.with_values(algorithm=knobs))


def test_a_split_is_shown_of_what_cannot_be_trained(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    small_machine(monkeypatch, MEGABYTE)
    problems = resolve(tiny.with_values(clients=150), to_train=False).problems
    assert any("training would be refused: clients = 150: the accuracy" in problem for problem in problems)


def test_data_that_this_machine_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pets = class_folders(tmp_path / "pets", {"cat": 5, "dog": 5})
    np.savez_compressed(tmp_path / "a.npz", x_train=np.zeros((40, 200, 200), np.uint8), y_train=np.arange(40) % 2)
    small_machine(monkeypatch, MEGABYTE)
    with pytest.raises(DataError, match=r"out of memory: 8 images of 500 x 500 x 3 would take .* lower data\.size, or"):
        load(data(source="folder", path=pets, size=500))
    with pytest.raises(DataError, match=r"a\.npz.*out of memory: its arrays would take 0\.0 GB"):
        load(data(source="npz", path=tmp_path / "a.npz"))


def test_an_array_that_says_that_it_is_huge(tmp_path: Path) -> None:
    """The header of an array in a file of a few bytes."""
    np.savez(tmp_path / "a.npz", x_train=np.zeros((4, 8, 8), np.uint8), y_train=np.arange(4) % 2)
    content = (tmp_path / "a.npz").read_bytes()
    shape = b"(4, 8, 8), }" + b" " * 14
    assert shape in content
    (tmp_path / "a.npz").write_bytes(content.replace(shape, b"(9999999999999, 8, 8), }  "))
    with pytest.raises(DataError) as error:
        load(data(source="npz", path=tmp_path / "a.npz"))
    assert len(str(error.value).splitlines()) == 1


def test_packing_what_no_disk_and_no_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pets, out = class_folders(tmp_path / "pets", {"cat": 5, "dog": 5}), tmp_path / "new" / "packed"
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage())
    with pytest.raises(DataError, match=r"the images would take 0\.1 GB, and the disk has 0\.0 GB for them; lower"):
        pack(data(source="folder", path=pets, size=2_000), out, workers=1)
    small_machine(monkeypatch, MEGABYTE)
    with pytest.raises(DataError, match=r"out of memory: 1 x 64 images of 200 x 200 x 3 would take .*lower --size or"):
        pack(data(source="folder", path=pets, size=200), out, workers=1)
    with pytest.raises(ConfigurationError, match=r"--workers 1000000000: at most 1,?024"):
        pack(data(source="folder", path=pets), out, workers=10**9)
    assert not out.parent.exists()


class _Usage:
    free = 5 * MEGABYTE


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("run", "--seeds", "1000000000"), "--seeds 1000000000: at most 1,000"),
        (("run", "--seeds", "1" + "0" * 30), "at most 1,000"),
        (("frontier", "--seeds", "1000000000"), "--seeds 1000000000: at most 1,000"),
        (("run", "--set", "training.steps=1000000000"), "training.steps = 1000000000: input should be less than"),
        (
            ("pack", "out", "--size", "1000000000"),
            "data.size = 1000000000: must be a number of pixels",
        ),
        (("pack", "out", "--workers", "1000000000"), "--workers 1000000000: at most 1024"),
        (("run", "--engine", "parallel", "--workers", "1000000000"), "--workers 1000000000: this experiment can use"),
    ],
)
def test_on_the_command_line(
    arguments: tuple[str, ...], line: str, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *rest = arguments
    monkeypatch.chdir(tiny_file.parent)
    result = CliRunner().invoke(app, [command, str(tiny_file), *rest])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert line in result.stderr
    assert [path for path in tiny_file.parent.rglob("*") if path.is_file()] == [tiny_file]


# Where it runs out all the same.


def torch_says() -> None:
    torch.empty(2**50)


def numpy_says() -> None:
    np.empty(2**50)


def an_error_says() -> None:
    raise MemoryError


@pytest.mark.parametrize("fill", [torch_says, numpy_says, an_error_says])
def test_too_little_memory_is_one_line_that_says_what_to_lower(fill: Any) -> None:
    with pytest.raises(TrainingError) as error, enough_memory():
        fill()
    assert str(error.value).startswith("out of memory: ")
    assert "; lower training.batch_size, " in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    remote = attempted(fill)
    assert isinstance(remote, RemoteError)
    assert remote.kind is TrainingError


def test_other_errors_are_no_matter_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shape"), enough_memory():
        raise RuntimeError("a wrong shape")
    with pytest.raises(FileNotFoundError), enough_memory():
        raise FileNotFoundError


def test_a_run_that_runs_out_of_memory_leaves_nothing(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        torch.empty(2**50)

    monkeypatch.setattr("manyheads.algorithms.mhd.MHD.losses", full)
    with pytest.raises(TrainingError, match=r"out of memory: 4,503,599\.6 GB more were needed; lower training"):
        train(tiny, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_command_that_runs_out_of_memory(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("there was no more")

    monkeypatch.setattr("manyheads.setup.resolve.split", full)
    monkeypatch.chdir(tiny_file.parent)
    result = CliRunner().invoke(app, ["split", str(tiny_file)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: out of memory: there was no more; lower ")


def test_a_model_that_runs_out_of_memory_when_it_is_tried(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_model.ClientModel, "forward", lambda *_: torch.empty(2**50))
    assert "such a cnn for images of 8 x 8 does not fit into memory" in refusal(tiny)


def test_the_memory_of_this_machine() -> None:
    assert machine_memory() > 10**8
    check_memory(machine_memory(), "all of it")
    with pytest.raises(MemoryError, match=r"more than that would take .* GB, and this machine has .* GB"):
        check_memory(machine_memory() + 1, "more than that")

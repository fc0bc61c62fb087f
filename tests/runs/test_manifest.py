"""Forged manifests and tensors are refused in one line, before anything is changed."""

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

from manyheads import Experiment, ManyheadsError, RunError, load_model, resume, train
from manyheads.errors import Interrupted
from manyheads.runs.manifest import Manifest, read_manifest
from manyheads.studies.reevaluate import reevaluate
from tests.data.test_files import make_socket
from tests.runs.conftest import StopAt

Body = dict[str, Any]


def reseal(run: Path, **changes: Any) -> None:
    """Change a manifest and make its checksum fit, as an attacker would."""
    path = run / "checkpoints" / "manifest.json"
    body = json.loads(path.read_text()) | changes
    del body["sha256"]
    canonical = json.dumps(body, sort_keys=True).encode()
    path.write_text(json.dumps({**body, "sha256": hashlib.sha256(canonical).hexdigest()}))


def replace_tensors(run: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], kind: str = "state") -> None:
    """Change the tensors of the first file of a kind, and let the manifest vouch for them."""
    files = read_manifest(run).files
    name = min(name for name in files if name.startswith(kind))
    place = run / "checkpoints" / name
    put_content(run, name, safetensors.torch.save(change(safetensors.torch.load(place.read_bytes()))))


def put_content(run: Path, name: str, content: bytes) -> None:
    (run / "checkpoints" / name).write_bytes(content)
    reseal(run, files={**read_manifest(run).files, name: hashlib.sha256(content).hexdigest()})


def refused(use: Callable[[Path], object], run: Path) -> str:
    """Return the one line in which using a run ends; its events must be as before."""
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(ManyheadsError) as error:
        use(run)
    assert "\n" not in str(error.value)
    assert (run / "metrics.jsonl").read_bytes() == before
    return str(error.value)


def test_a_resealed_manifest_is_read(stopped: Path) -> None:
    """Resealing alone changes nothing; otherwise the tests below would prove nothing."""
    reseal(stopped, seconds=5.0)
    assert read_manifest(stopped).seconds == 5.0


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 10**12},
        {"step": 20},
        {"step": -10},
        {"step": 10**400},
        {"step": 10.0},
        {"step": True},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": "5"},
        {"metrics_bytes": -1},
        {"metrics_bytes": 10**15},
        {"metrics_sha256": 5},
        {"clients": []},
        {"clients": None},
        {"clients": [{"state": 1, "pool": [], "bytes_received": 0}]},
        {"files": []},
        {"files": {}},
        {"format": "3"},
        {"format": None},
        {"experiment": 5},
        {"experiment": "0" * 64},
        {"more": 1},
    ],
    ids=str,
)
def test_wrong_manifests(stopped: Path, changes: Body) -> None:
    reseal(stopped, **changes)
    assert "manifest.json" in refused(resume, stopped) or "metrics_bytes" in changes
    assert not (stopped / "summary.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"step": ' * 100_000,
        '{"step": 1' + "0" * 5_000 + "}",
        "[]",
        "null",
        '"sha256"',
        "{}",
        '{"sha256": 1}',
        "\udcff",
        "",
    ],
    ids=["lists", "objects", "digits", "list", "null", "text", "empty object", "no fields", "bytes", "empty"],
)
def test_what_is_no_manifest(stopped: Path, text: str) -> None:
    (stopped / "checkpoints" / "manifest.json").write_text(text, errors="surrogateescape")
    assert "not a readable checkpoint" in refused(resume, stopped)


def test_a_manifest_of_a_later_version_says_so(stopped: Path) -> None:
    reseal(stopped, format=4, something="new")
    assert "has format 4; this version of manyheads reads format 3" in refused(resume, stopped)


@pytest.mark.parametrize(
    "name",
    [
        "../experiment.toml",
        "/etc/hostname",
        "notes.txt",
        "manifest.json",
        "state-00000010-client-0000.safetensors/../x",
        "snapshot-00000010-client-0009.safetensors",
        "snapshot-00000011-client-0000.safetensors",
        "snapshot-99999999999999999999-client-0000.safetensors",
        "state-00000009-client-0000.safetensors",
        "snapshot-00000004-client-0000.safetensors\n",
    ],
)
def test_names_that_no_file_of_ours_has(stopped: Path, name: str) -> None:
    manifest = read_manifest(stopped)
    shown = manifest.clients[0].model_dump(exclude_defaults=True) | {"pool": [name]}
    clients = [shown, *(client.model_dump(exclude_defaults=True) for client in manifest.clients[1:])]
    reseal(stopped, clients=clients, files={**manifest.files, name: "0" * 64})
    assert "names files that do not belong to its clients" in refused(resume, stopped)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "socket"])
@pytest.mark.parametrize("pattern", ["manifest.json", "state-*"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(
    stopped: Path, tmp_path: Path, kind: str, pattern: str
) -> None:
    place = next((stopped / "checkpoints").glob(pattern))
    moved = shutil.move(place, tmp_path / "moved")
    if kind == "link":
        place.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        make_socket(place)
    else:
        place.mkdir()
    assert f"{place}: cannot be read: is {'a link' if kind == 'link' else 'not a file'}" in refused(resume, stopped)


def without_weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name != "values"}


WRONG: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "short": lambda tensors: tensors | {"values": tensors["values"][:-1].clone()},
    "other shape": lambda tensors: tensors | {"values": tensors["values"][None].clone()},
    "other type": lambda tensors: tensors | {"values": tensors["values"].double()},
    "whole numbers": lambda tensors: tensors | {"values": tensors["values"].long()},
    "none": lambda tensors: {},
    "no weights": without_weights,
    "one number": lambda tensors: tensors | {"values": torch.tensor(1.0)},
    "nothing in it": lambda tensors: tensors | {"values": torch.empty(0)},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_states_that_fit_no_model(stopped: Path, run: Path, change: Any) -> None:
    replace_tensors(stopped, change)
    assert "does not fit" in refused(resume, stopped)
    replace_tensors(run, change)
    for use in (reevaluate, load_model):
        assert "does not fit" in refused(use, run)


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_snapshots_that_fit_no_model(stopped: Path, change: Any) -> None:
    replace_tensors(stopped, change, "snapshot")
    assert "does not fit" in refused(resume, stopped)


DENSITY = {"algorithm": {"confidence": "density"}}
FEDMD = {
    "algorithm": {"name": "fedmd", "first_private_steps": 4, "digest_steps": 8, "revisit_steps": 8},
    "model": {"auxiliary_heads": 0},
    "training": {"steps": 20},
}


@pytest.mark.parametrize(
    ("values", "key"), [(DENSITY, "density whitening_EE"), (FEDMD, "consensus")], ids=["mhd", "fedmd"]
)
def test_what_an_algorithm_kept_of_a_client_fits_its_model(
    tiny: Experiment, tmp_path: Path, values: Body, key: str
) -> None:
    with pytest.raises(Interrupted):
        train(tiny.with_values(**values), tmp_path / "made", observer=StopAt(25))
    kinds = {"state": f"memory {key}", **({"snapshot": key} if "density" in key else {})}
    for kind, name in kinds.items():
        for wrong in (lambda t: t[:1].clone(), lambda t: torch.full_like(t, torch.nan), lambda t: t.bool()):
            run = Path(shutil.copytree(tmp_path / "made", tmp_path / "run"))

            def spoil(tensors: dict[str, Tensor], name: str = name, wrong: Any = wrong) -> dict[str, Tensor]:
                return tensors | {name: wrong(tensors[name])}

            replace_tensors(run, spoil, kind)
            assert "does not fit" in refused(resume, run)
            shutil.rmtree(run)


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_weights_that_are_no_numbers_are_not_used(stopped: Path, run: Path, number: float) -> None:
    def spoil(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors["values"][7] = number
        return tensors

    for place, uses in ((stopped, (resume,)), (run, (reevaluate, load_model))):
        replace_tensors(place, spoil)
        for use in uses:
            assert "holds a number that is not finite" in refused(use, place)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no tensors",
        (10**12).to_bytes(8, "little"),
        (2**63).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b"[" * 9,
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
    ],
    ids=["empty", "text", "huge header", "larger header", "no tensors", "list", "nested"],
)
def test_files_that_hold_no_tensors(run: Path, content: bytes) -> None:
    put_content(run, min(read_manifest(run).files), content)
    for use in (reevaluate, load_model):
        assert min(read_manifest(run).files) in refused(use, run) or content.endswith(b"{}")


def header(**tensor: Any) -> bytes:
    text = json.dumps({"values": tensor}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        header(dtype="F32", shape=[10**18], data_offsets=[0, 4 * 10**18]),
        header(dtype="F32", shape=[2**62, 2**62], data_offsets=[0, 0]),
        header(dtype="F8_E5M2", shape=[0], data_offsets=[0, 0]),
        header(dtype="F32", shape=[0], data_offsets=[0, 0]),
        header(dtype="F4", shape=[2], data_offsets=[0, 1]) + b"1",
        header(dtype="nothing", shape=[1], data_offsets=[0, 1]) + b"1",
        header(dtype="F32", shape=[-1], data_offsets=[0, 4]) + b"1234",
    ],
    ids=["huge", "overflow", "odd type", "empty", "half bytes", "no type", "negative"],
)
def test_headers_that_promise_what_is_not_there(run: Path, content: bytes) -> None:
    put_content(run, min(read_manifest(run).files), content)
    for use in (reevaluate, load_model):
        refused(use, run)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("seed = 0", "seed = 1"),
        ("skew = 100.0", "skew = 1.0"),
        ("nu_aux = 10.0", "nu_aux = 2.0"),
        ("steps = 20", "steps = 30"),
    ],
)
def test_a_run_is_not_measured_by_another_experiment(run: Path, before: str, after: str) -> None:
    path = run / "experiment.toml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    for use in (reevaluate, load_model):
        assert "is a checkpoint of a different experiment" in refused(use, run)
    path.write_text(path.read_text().replace(after, before))
    reevaluate(run)


def test_a_save_in_the_middle_is_not_the_end(run: Path, stopped: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(stopped / "checkpoints", run / "checkpoints")
    for use in (reevaluate, load_model):
        assert "was saved at step 10 of 20" in refused(use, run)
    shutil.rmtree(run / "checkpoints")
    for use in (reevaluate, load_model):
        assert "holds no weights" in refused(use, run)


def test_what_is_sealed_is_what_is_read(stopped: Path, tmp_path: Path) -> None:
    manifest = read_manifest(stopped)
    (tmp_path / "manifest.json").write_text(manifest.seal())
    assert Manifest.unseal(tmp_path / "manifest.json") == manifest
    (tmp_path / "manifest.json").write_text(manifest.seal().replace('"step": 10', '"step": 11'))
    with pytest.raises(RunError, match="was changed after it was written"):
        Manifest.unseal(tmp_path / "manifest.json")

"""Models of a run or an export whose code is a stranger's, and of one's own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads import Experiment, RunError, load_model, train
from manyheads.export.write import export
from tests.strangers import CODE, NAME, SHORT, forget_modules, ran

Use = Callable[..., Any]
IMAGES = torch.zeros(2, 8, 8, 1, dtype=torch.uint8)


def exported(run: Path, **options: Any) -> None:
    export(run, 1, Path("out"), **options)


@pytest.mark.parametrize("use", [load_model, exported])
def test_a_stranger_s_run(stranger: Path, use: Use) -> None:
    with pytest.raises(RunError, match=rf'^runs/stranger: model.backbone = "{NAME}:net" would import .*/code\.py, and'):
        use(stranger)
    assert not ran(stranger)
    assert not Path("out").exists()
    use(stranger, trust_code=True)
    assert ran(stranger)


def test_a_stranger_s_export(stranger: Path) -> None:
    """A stranger's export is not trusted, even where the user exported it himself: trusting once is not for ever."""
    export(stranger, 0, Path("out"), trust_code=True)
    (stranger / "ran").unlink()
    forget_modules()
    with pytest.raises(RunError, match=r"^out: model.backbone .* would import"):
        load_model("out")
    assert not ran(stranger)
    assert load_model("out", trust_code=True)(IMAGES).shape == (2, 10)


@pytest.mark.parametrize("use", [load_model, exported])
def test_a_manifest_is_checked_before_code_is_imported(stranger: Path, use: Use) -> None:
    manifest = stranger / "checkpoints" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 2', '"step": 3'))
    with pytest.raises(RunError, match=r"manifest\.json: "):
        use(stranger, trust_code=True)
    assert not ran(stranger)


def test_weights_are_checked_before_code_is_imported(stranger: Path) -> None:
    export(stranger, 0, Path("out"), trust_code=True)
    (stranger / "ran").unlink()
    forget_modules()
    Path("out/model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"model\.safetensors: is damaged"):
        load_model("out", trust_code=True)
    assert not ran(stranger)


def test_one_s_own_run_and_export(tiny: Experiment, stranger: Path) -> None:
    Path("own_lab.py").write_text(CODE)
    train(tiny.with_values(**SHORT, model={"backbone": "own_lab:net"}), "runs/own")
    export(Path("runs/own"), 0, Path("out"))
    assert torch.equal(load_model("runs/own")(IMAGES), load_model("out")(IMAGES))
    assert "needs `trust_code=True`" in Path("out/README.md").read_text()
    shutil.copytree("out", "copied")
    with pytest.raises(RunError, match="you did not make this folder here"):
        load_model("copied")
    card = Path("out/model.json")
    card.write_text(json.dumps(json.loads(card.read_text()) | {"name": "another"}))
    with pytest.raises(RunError, match="you did not make this folder here"):
        load_model("out")


@pytest.mark.parametrize("loading", ["load_model('out')", "resume('runs/stranger')"])
def test_a_file_beside_an_export_is_not_taken_for_a_library(stranger: Path, loading: str) -> None:
    """Python puts the working folder on its path in `python -c`, in a notebook and in `python -m manyheads`."""
    export(stranger, 0, Path("out"), trust_code=True)
    card = Path("out/model.json")
    card.write_text(card.read_text().replace(f"{NAME}:net", "timm:resnet18"))
    (stranger / "summary.json").unlink()
    shutil.rmtree(stranger / "checkpoints")
    experiment = stranger / "experiment.toml"
    experiment.write_text(experiment.read_text().replace('"digits"', '"torchvision"\nname = "MNIST"'))
    for library in ("timm", "torchvision"):
        Path(f"{library}.py").write_text("open('ran', 'w')\n")
    script = f"from manyheads import load_model, resume; {loading}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ConfigurationError: " in done.stderr.strip().splitlines()[-1]
    assert not Path("ran").exists()

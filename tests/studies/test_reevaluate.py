"""Evaluating a run again."""

from pathlib import Path

import pytest

from manyheads import RunError
from manyheads.studies.reevaluate import reevaluate
from tests.strangers import NAME, ran


def test_a_stranger_s_code_is_not_run(stranger: Path) -> None:
    with pytest.raises(RunError, match=rf'^runs/stranger: model.backbone = "{NAME}:net" would import .*/code\.py, and'):
        reevaluate(stranger)
    assert not ran(stranger)
    assert reevaluate(stranger, trust_code=True).summary["steps"] == 2
    assert ran(stranger)


def test_a_manifest_is_checked_before_code_is_imported(stranger: Path) -> None:
    manifest = stranger / "checkpoints" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 2', '"step": 3'))
    with pytest.raises(RunError, match=r"manifest\.json: "):
        reevaluate(stranger, trust_code=True)
    assert not ran(stranger)

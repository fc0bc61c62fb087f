"""The fingerprint of rounding: equal fingerprints promise equal losses."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyheads.rounding import rounding
from tests.golden.test_golden import losses

ROOT = Path(__file__).parent.parent
GOLDEN = "separate"
SCRIPT = f"""
import json, torch
from manyheads.rounding import rounding
from tests.golden.test_golden import losses
torch.set_num_threads(1)
print(json.dumps([torch.backends.cpu.get_cpu_capability(), rounding(), losses({GOLDEN!r})]))
"""


def elsewhere(switch: str, value: str) -> list[Any]:
    """Return the vector instructions, fingerprint and losses of a process with less, by libraries' own switches."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=os.environ | {switch: value}, stdout=subprocess.PIPE, check=True
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("switch", "value"), [("ATEN_CPU_CAPABILITY", "default"), ("ONEDNN_MAX_CPU_ISA", "AVX2")])
def test_equal_fingerprints_have_equal_losses(switch: str, value: str) -> None:
    instructions, fingerprint, found = elsewhere(switch, value)
    if instructions != torch.backends.cpu.get_cpu_capability():
        assert fingerprint != rounding()
    assert (fingerprint == rounding()) <= (found == losses(GOLDEN))


def test_the_number_of_threads_does_not_matter() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert rounding.__wrapped__() == rounding()
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["conv2d", "batch_norm", "linear", "normalize", "log_softmax"])
def test_the_last_bit_of_any_operation_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation: Callable[..., Tensor] = getattr(torch.nn.functional, name)

    def otherwise(*arguments: Any, **options: Any) -> Tensor:
        found = operation(*arguments, **options)
        off, first = torch.zeros_like(found), (0,) * found.ndim
        off[first] = found[first].detach().nextafter(torch.tensor(torch.inf)) - found[first].detach()
        return found + off

    monkeypatch.setattr(torch.nn.functional, name, otherwise)
    assert rounding.__wrapped__() != rounding()

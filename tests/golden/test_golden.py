"""The first 50 losses of each algorithm on the CPU: a change that is not about numbers leaves them as they are.

`python -m tests.golden.test_golden` writes them anew, or those that it names; such a change says so in docs/log.md.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads import Experiment
from manyheads.algorithms import ALGORITHMS
from manyheads.config.as_printed import as_printed
from manyheads.rounding import rounding
from manyheads.setup.build import assemble
from tests.conftest import TINY
from tests.contracts import train_by_hand

FOLDER = Path(__file__).parent
STEPS = 50
VARIANTS: dict[str, dict[str, Any]] = {
    "mhd": {"name": "mhd", "pool_size": 3, "pool_every": 5, "ramp": {"hold": 0.1, "rise": 0.3}},
    "mhd-variants": {
        "name": "mhd",
        "pool_size": 3,
        "pool_every": 5,
        "pool_start": "empty",
        "targets_per_step": 2,
        "confidence": "entropy",
        "same_level": True,
        "self_target": True,
    },
    "mhd-predictions": {
        "name": "mhd",
        "pool_size": 3,
        "pool_every": 5,
        "exchange": "predictions",
        "top_k": 3,
        "precision": "float16",
    },
    "mhd-density": {"name": "mhd", "pool_size": 3, "pool_every": 5, "confidence": "density"},
    "averaging": {"name": "averaging", "average_every": 10},
    "fedmd": {
        "name": "fedmd",
        "first_public_steps": 5,
        "first_private_steps": 5,
        "digest_steps": 10,
        "revisit_steps": 10,
    },
    "separate": {"name": "separate"},
    "balanced": {"name": "separate"},
    "mhd-defaults": {  # every knob that changes numbers, so that a new default leaves them as they are
        "name": "mhd",
        "pool_size": 3,
        "pool_every": 5,
        "nu_emb": 0.1,
        "nu_aux": 10.0,
        "pull": 0.3,
        "select": "mixture",
        "sharpness": 8.0,
        "remember": 0.9,
        "confidence": "density",
        "ramp": {"hold": 0.0, "rise": 0.0},
    },
    "mhd-pull-ramp": {
        "name": "mhd",
        "pool_size": 3,
        "pool_every": 5,
        "nu_emb": 0.1,
        "nu_aux": 10.0,
        "pull": 3.0,
        "pull_ramp": {"hold": 0.1, "rise": 0.3},
        "select": "mixture",
        "sharpness": 8.0,
        "remember": 0.7,
        "confidence": "density",
        "ramp": {"hold": 0.0, "rise": 0.0},
    },
}
VARIANTS["mhd-own-labels"] = VARIANTS["mhd-pull-ramp"] | {"own_labels": 1.0}
BALANCE = {
    "balanced": 1.0,
    "mhd-defaults": 1.0,
    "mhd-pull-ramp": 1.0,
    "mhd-own-labels": 1.0,
}  # the others are trained as the paper prints it


def losses(variant: str) -> list[list[float]]:
    """Steps x (client 0's terms, client 1's terms, ...)."""
    printed, mhd = as_printed(VARIANTS[variant]["name"]), VARIANTS[variant]["name"] == "mhd"
    experiment = Experiment(**TINY).with_values(
        algorithm=printed["algorithm"] | (TINY["algorithm"] if mhd else {}) | VARIANTS[variant],
        training=printed["training"] | {"steps": STEPS, "balance": BALANCE.get(variant, 0.0)},
        data={"augment": "crop-flip"},
    )
    found: list[list[float]] = train_by_hand(assemble(experiment)).tolist()
    return found


def made_with() -> dict[str, str]:
    """What last bits depend on; of the version not its build, whose rounding is asked."""
    return {"torch": torch.__version__.partition("+")[0], "rounding": rounding()}


def test_every_algorithm_has_golden_losses() -> None:
    assert {knobs["name"] for knobs in VARIANTS.values()} == set(ALGORITHMS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_are_golden(variant: str) -> None:
    golden = json.loads((FOLDER / f"{variant}.json").read_text())
    ours = losses(variant)
    if golden["made_with"] == made_with():
        assert ours == golden["losses"]
    else:  # what rounds otherwise differs more from step to step
        for steps, rtol in ((5, 1e-3), (10, 1e-2)):
            expected = torch.tensor(golden["losses"][:steps])
            torch.testing.assert_close(torch.tensor(ours[:steps]), expected, rtol=rtol, atol=1e-5)


if __name__ == "__main__":
    for name in sys.argv[1:] or VARIANTS:
        content = {"made_with": made_with(), "losses": losses(name)}
        (FOLDER / f"{name}.json").write_text(json.dumps(content) + "\n")

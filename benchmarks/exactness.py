"""How far the GPU is from the CPU: every algorithm on the demo's data in the plain engine on both, same draws.

    python benchmarks/exactness.py

Prints the largest relative difference of any loss term of any client. Targets: 1e-4 over 10 steps in float32 (TF32
off), 1e-6 over 50 steps in float64. Where there is no GPU it compares the CPU with itself, which must give 0.
"""

from typing import Any

import torch
from torch import Tensor

from manyheads.demo import demo_experiment
from manyheads.engine.plain import Plain, exchange
from manyheads.ensemble import assemble
from manyheads.training import windows

# Distillation from the first step, and an exchange every fifth: a difference in a target must be able to show.
EARLY = {"ramp": {"hold": 0.0, "rise": 0.0}, "pool_every": 5}
VARIANTS: dict[str, dict[str, Any]] = {
    "mhd": EARLY,
    "mhd, predictions": {**EARLY, "exchange": "predictions", "top_k": 3},
    "mhd, density": {**EARLY, "confidence": "density"},
    "averaging": {"name": "averaging", "average_every": 5},
    "fedmd": {
        "name": "fedmd",
        "first_public_steps": 2,
        "first_private_steps": 3,
        "digest_steps": 3,
        "revisit_steps": 2,
    },
}


def losses(knobs: dict[str, Any], device: str, dtype: torch.dtype, steps: int) -> Tensor:
    ensemble = assemble(demo_experiment().with_values(algorithm=knobs), device, dtype)
    exchange(ensemble, step=0)
    found = []
    for window in windows(0, steps, ensemble.exchange_steps):
        found.append(Plain().train(ensemble.clients, ensemble.algorithm, window, lambda _: None).values.double())
        exchange(ensemble, window.stop)
    return torch.cat(found, dim=1)


def main() -> None:
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    other = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if other == "cuda" else "no GPU: the CPU against itself"
    print(f"torch {torch.__version__}, {name}")
    for variant, knobs in VARIANTS.items():
        for dtype, steps, target in ((torch.float32, 10, 1e-4), (torch.float64, 50, 1e-6)):
            here, there = losses(knobs, "cpu", dtype, steps), losses(knobs, other, dtype, steps)
            difference = ((here - there).abs() / here.abs().clamp(min=1e-3)).max().item()
            verdict = "met" if difference <= target else "MISSED"
            print(
                f"{variant:18} {dtype!s:14} {steps} steps: {difference:.1e}   target {target:g} {verdict}", flush=True
            )


if __name__ == "__main__":
    main()

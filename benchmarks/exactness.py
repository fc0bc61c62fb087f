"""How far the GPU is from the CPU: the demo's experiment in the plain engine on both, same draws.

    python benchmarks/exactness.py

Prints the largest relative difference of any loss term of any client. Targets: 1e-4 over 10 steps in float32 (TF32
off), 1e-6 over 50 steps in float64. Where there is no GPU it compares the CPU with itself, which must give 0.
"""

import torch
from torch import Tensor

from manyheads.demo import demo_experiment
from manyheads.engine.base import Window
from manyheads.engine.plain import Plain
from manyheads.ensemble import assemble
from manyheads.training import exchange


def losses(device: str, dtype: torch.dtype, steps: int) -> Tensor:
    # Distillation from the first step: a difference in a target must be able to show.
    experiment = demo_experiment().with_values(algorithm={"ramp": {"hold": 0.0, "rise": 0.0}})
    ensemble = assemble(experiment, device, dtype)
    exchange(ensemble, step=0)
    return Plain().train(ensemble.clients, ensemble.algorithm, Window(0, steps), lambda _: None).values.double()


def main() -> None:
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    other = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if other == "cuda" else "no GPU: the CPU against itself"
    print(f"torch {torch.__version__}, {name}")
    for dtype, steps, target in ((torch.float32, 10, 1e-4), (torch.float64, 50, 1e-6)):
        here, there = losses("cpu", dtype, steps), losses(other, dtype, steps)
        difference = ((here - there).abs() / here.abs().clamp(min=1e-3)).max().item()
        verdict = "met" if difference <= target else "MISSED"
        print(f"{dtype!s:14} {steps} steps: largest relative difference {difference:.1e}   target {target:g} {verdict}")


if __name__ == "__main__":
    main()

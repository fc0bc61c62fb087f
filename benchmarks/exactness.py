"""The difference between GPU and CPU: every algorithm on the demo's data with the same draws, in both engines.

    python benchmarks/exactness.py [--seeds 5] [--write docs/measurements.md]

Gives the largest relative difference of any loss term of any client to the plain engine on the CPU. Targets: 1e-4 over
10 steps in float32 (TF32 off), 1e-6 over 50 steps in float64. Then the demonstration's accuracies at its end, which in
bf16 must be the same within the spread of seeds. Where there is no GPU it compares the CPU with itself.

`--moved 8` instead compares the CPU with itself, eight times, after moving initial weights by at most half a unit in
the last place: this is what rounding alone can do.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from common import add_write, markdown_table, printed_demo, publish, spread
from manyheads import Experiment, train
from manyheads.engine.cuda.trainer import CudaTrainer
from manyheads.engine.plain import LocalEngine, PlainTrainer
from manyheads.engine.worker import Trainer
from manyheads.runs.summary import Summary
from manyheads.setup.build import assemble
from manyheads.training.loop import windows

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


HALF_A_UNIT = 6e-8  # relative, in float32


def losses(
    knobs: dict[str, Any], device: str, dtype: torch.dtype, steps: int, trainer: Trainer, moved: int | None = None
) -> Tensor:
    """Return the losses of all clients; with `moved`, the number of a try, after moving initial weights a little."""
    ensemble = assemble(printed_demo().with_values(algorithm=knobs), device, dtype)
    if moved is not None:
        draws = torch.Generator().manual_seed(moved)
        for client in ensemble.clients:
            values = client.state.values
            values.mul_(1.0 + HALF_A_UNIT * (2.0 * torch.rand(values.shape, generator=draws) - 1.0))
    engine, found = LocalEngine(ensemble, trainer), []
    engine.exchange(step=0)
    for window in windows(0, steps, ensemble.resolved.exchange_steps):
        found.append(engine.train(window, lambda _: None).values.double())
        engine.exchange(window.stop)
    return torch.cat(found, dim=1)


def compare(device: str) -> list[list[str]]:
    table = []
    for variant, knobs in VARIANTS.items():
        for dtype, steps, target in ((torch.float32, 10, 1e-4), (torch.float64, 50, 1e-6)):
            here = losses(knobs, "cpu", dtype, steps, PlainTrainer())
            for name, trainer in (("plain", PlainTrainer()), ("cuda", CudaTrainer("float32"))):
                there = losses(knobs, device, dtype, steps, trainer)
                apart = ((here - there).abs() / here.abs().clamp(min=1e-3)).max().item()
                verdict = "met" if apart <= target else "missed"
                kind = str(dtype).removeprefix("torch.")
                table.append([variant, name, kind, str(steps), f"{apart:.1e}", f"{target:g}", verdict])
                print(*table[-1], flush=True)
    return table


def rounding_alone(tries: int) -> None:
    for variant, knobs in VARIANTS.items():
        here = losses(knobs, "cpu", torch.float32, 10, PlainTrainer())
        found = []
        for number in range(tries):
            there = losses(knobs, "cpu", torch.float32, 10, PlainTrainer(), moved=number)
            found.append(((here - there).abs() / here.abs().clamp(min=1e-3)).max().item())
        print(f"{variant:18} {' '.join(f'{apart:.1e}' for apart in found)}", flush=True)


def accuracies(seeds: int) -> list[list[str]]:
    """Run the demonstration on the CPU and in bf16 on the GPU; return mean and spread over seeds."""
    experiments = [printed_demo().with_values(seed=seed) for seed in range(seeds)]
    with ProcessPoolExecutor(seeds, mp_context=get_context("spawn")) as pool:
        on_cpu = pool.map(_trained, experiments)
        on_gpu = [train(experiment, engine="cuda").summary for experiment in experiments]
        found = {"plain, CPU, float32": list(on_cpu), "cuda, GPU, bf16": on_gpu}
    return [
        [
            name,
            spread([summary["private_accuracy"][0] for summary in summaries]),
            *(spread([summary["shared_accuracy"][head] for summary in summaries]) for head in range(4)),
        ]
        for name, summaries in found.items()
    ]


def _trained(experiment: Experiment) -> Summary:
    return train(experiment).summary


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="of the comparison of accuracies; 0: none")
    add_write(parser)
    parser.add_argument("--moved", type=int, metavar="TRIES", help="what rounding alone can do")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.moved:
        return rounding_alone(options.moved)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    other = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if other == "cuda" else "no GPU: the CPU against itself"
    header = ["", "engine", "numbers", "steps", "difference", "target", ""]
    table = markdown_table(header, compare(other))
    page = f"`python benchmarks/exactness.py`; {name}, torch {torch.__version__}.\n\n{table}"
    if other == "cuda" and options.seeds:
        header = [f"accuracy in %, seeds 0 to {options.seeds - 1}", "private", *(f"shared, head {k}" for k in range(4))]
        page += f"\n\n{markdown_table(header, accuracies(options.seeds))}"
    publish("exactness", page, options)


if __name__ == "__main__":
    main()

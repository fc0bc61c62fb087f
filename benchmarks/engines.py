"""The speed of the engines against the plain loop, for the same work.

    python benchmarks/engines.py [--device cpu|cuda] [--model NAME] [--rounds N] [--write docs/measurements.md]

On the CPU: the plain engine (one thread), two worker processes, Ray actors, and for comparison what was not built: a
pool of two threads. Each has its own clients; they take turns, window by window, in one run. The table gives
client-steps/s (median) and the median of the ratios to the plain engine's window of the same round. Targets on two
cores: parallel at least 1.7 times plain; Ray within 15 % of parallel.

On a GPU: the plain engine and the cuda engine in bf16, eight clients with 4 auxiliary heads and one target on noise of
32 x 32, batches of 128 + 128, with all that belongs to it: draws, views, teachers, optimizer, an exchange after each
window. *Floor* is what roofline.py counts at the speeds of a large product and a large copy on the same GPU. Targets:
ResNet-18 225 client-steps/s and 3.8 times plain; the small ResNet (width 16, three stages) 750 and 7.5; ResNet-34 115.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from common import add_write, markdown_table, processor_name, publish
from manyheads import Experiment
from manyheads.algorithms.base import Algorithm
from manyheads.client.client import Client
from manyheads.config.as_printed import as_printed
from manyheads.engine import ENGINES
from manyheads.engine.base import Engine, Progress, Window, WindowLosses
from manyheads.engine.cores import usable_cores
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.plain import LocalEngine, PlainTrainer
from manyheads.exchange.weights import Replica, WeightsSnapshot
from manyheads.setup.build import Ensemble, assemble
from roofline import Speeds, floor, speeds
from step_overhead import experiment

WORKERS = 2
TARGETS = {"parallel": ("plain", 1.7), "ray": ("parallel", 0.85)}
GPU_MODELS = {"resnet18": ("resnet18", 64), "small": ("resnet8", 16), "resnet34": ("resnet34", 64)}
GPU_TARGETS = {"resnet18": (225.0, 3.8), "small": (750.0, 7.5), "resnet34": (115.0, 1.0)}
SHAPES = {  # windows of some seconds
    "demo": {"clients": 8, "steps": 250, "rounds": 5},
    "resnet18": {"clients": 4, "steps": 1, "rounds": 3},
}


class Threads:
    """A trainer, for comparison only, that trains each client's window in one of two threads."""

    encodes = True

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._pool = ThreadPoolExecutor(WORKERS, initializer=torch.set_num_threads, initargs=(1,))

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        found = list(
            self._pool.map(lambda client: PlainTrainer().train([client], algorithm, window, progress), clients)
        )
        return WindowLosses(found[0].terms, torch.cat([own.values for own in found]), (True,) * len(clients))


def threads(ensemble: Ensemble, options: ResolvedOptions) -> Engine:
    made = LocalEngine(ensemble, Threads())
    made.exchange(step=0)
    for client in ensemble.clients:  # a replica holds one snapshot at a time: threads cannot share one
        own = Replica(client.make_model())
        shown = [entry for entry in client.pool.entries if isinstance(entry, WeightsSnapshot)]
        client.pool.entries = [replace(entry, replica=own) for entry in shown]
    return made


CPU: dict[str, Callable[[Ensemble, ResolvedOptions], Engine]] = {
    **{name: ENGINES[name] for name in ("plain", "parallel", "ray")},
    "threads": threads,
}


def on_the_cpu(model: str, rounds: int, names: Sequence[str]) -> dict[str, list[float]]:
    """Return the client-steps/s of each engine, round by round."""
    shape = SHAPES[model]
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        long = {"steps": 100_000}
        described = experiment(model, Path(folder)).with_values(clients=shape["clients"], training=long)
        engines = {}
        for name in names:
            options = ResolvedOptions("parallel", workers=WORKERS) if name == "parallel" else ResolvedOptions()
            engines[name] = stack.enter_context(contextlib.closing(CPU[name](assemble(described), options)))
            if name != "threads":
                engines[name].exchange(step=0)
        for number in range(-1, rounds):  # the first one warms up
            for name, engine in engines.items():
                start = (number + 1) * shape["steps"]
                begun = time.perf_counter()
                engine.train(Window(start, start + shape["steps"]), lambda _: None)
                if number >= 0:
                    seconds = time.perf_counter() - begun
                    found[name].append(shape["clients"] * shape["steps"] / seconds)
    return found


def on_the_gpu(model: str, rounds: int, names: Sequence[str]) -> dict[str, list[float]]:
    """Return the same as `on_the_cpu`; the plain engine takes shorter windows."""
    device, found = "cuda", dict[str, list[float]]()
    described, steps = gpu_experiment(model), {"plain": 10, "cuda": 100}
    engines = {
        name: ENGINES[name](assemble(described, device), ResolvedOptions(name, device, precision="bf16"))
        for name in steps
    }
    for engine in engines.values():
        engine.exchange(step=0)
    for number in range(-1, rounds):  # the first one warms up
        for name, engine in engines.items():
            start = (number + 1) * 100
            torch.cuda.synchronize()
            begun = time.perf_counter()
            engine.train(Window(start, start + steps[name]), lambda _: None)
            engine.exchange(start + 100)
            torch.cuda.synchronize()
            if number >= 0:
                found.setdefault(name, []).append(8 * steps[name] / (time.perf_counter() - begun))
    return found


def gpu_experiment(model: str) -> Experiment:
    backbone, width = GPU_MODELS[model]
    folder = Path(tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, size=(20_000, 32, 32, 3), dtype=np.uint8), np.arange(20_000) % 100
    np.savez(folder / "noise.npz", x_train=images, y_train=labels, x_test=images[:100], y_test=labels[:100])
    return Experiment(
        clients=8,
        data={"source": "npz", "path": str(folder / "noise.npz"), "public_fraction": 0.25, "augment": "crop-flip"},
        model={"backbone": backbone, "width": width, "auxiliary_heads": 4},
        algorithm=as_printed()["algorithm"] | {"ramp": {"hold": 0.0, "rise": 0.0}},
        training={
            "balance": 0.0,
            "warmup_steps": 200,
            "steps": 100_000,
            "batch_size": 128,
            "public_batch_size": 128,
            "log_every": 100_000,
        },
    )


def gpu_rows(model: str, found: dict[str, list[float]], at: Speeds) -> list[list[str]]:
    least = floor(assemble(gpu_experiment(model)).clients[0], (32, 32, 3), at, teachers=1)
    speed, times = GPU_TARGETS[model]
    table = []
    for name, speeds_seen in found.items():
        reached, against = statistics.median(speeds_seen), ratio(found, name, "plain")
        verdict = ""
        if name == "cuda":
            met = reached >= speed and against >= times
            verdict = f"{speed:g} and {times:g} x: {'met' if met else 'missed'}"
        share = f"{100 * least.seconds * reached:.0f} %"
        table.append([model, name, f"{reached:.1f}", f"{against:.2f}", f"{1e3 / reached:.2f}", share, verdict])
    table.append(
        [
            model,
            "floor",
            f"{1 / least.seconds:.0f}",
            "",
            f"{1e3 * least.seconds:.2f}",
            f"{least.operations / 1e12:.2f} TFLOP, {least.bytes / 1e9:.2f} GB",
            "",
        ]
    )
    return table


def ratio(found: dict[str, list[float]], name: str, to: str) -> float:
    return statistics.median(own / other for own, other in zip(found[name], found[to], strict=True))


def cpu_rows(model: str, found: dict[str, list[float]]) -> list[list[str]]:
    table = []
    for name, speeds_seen in found.items():
        verdict = ""
        if name in TARGETS and TARGETS[name][0] in found:
            to, wanted = TARGETS[name]
            reached = ratio(found, name, to)
            verdict = f"{reached:.2f} x {to}, target {wanted}: {'met' if reached >= wanted else 'missed'}"
        table.append(
            [model, name, f"{statistics.median(speeds_seen):.1f}", f"{ratio(found, name, 'plain'):.2f}", verdict]
        )
    return table


PARTS = {"cpu": on_the_cpu, "cuda": on_the_gpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=sorted(PARTS), default="cpu")
    parser.add_argument("--model", nargs="+", choices=sorted({*SHAPES, *GPU_MODELS}))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="+", choices=sorted(CPU), default=[])
    add_write(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in CPU if not options.only or name in (*options.only, "plain")]
    command = f"`python benchmarks/engines.py --device {options.device}`"
    table: list[list[str]] = []
    if options.device == "cpu":
        for model in options.model or SHAPES:
            table += cpu_rows(model, on_the_cpu(model, options.rounds or SHAPES[model]["rounds"], names))
            print(markdown_table([""] * 5, table), flush=True)
        header = ["model", "engine", "client-steps/s", "x plain", "target"]
        about = f"{command}; {processor_name()}, {usable_cores()} cores, torch {torch.__version__}."
    else:
        at = speeds(torch.device("cuda"))
        for model in options.model or GPU_MODELS:
            table += gpu_rows(model, on_the_gpu(model, options.rounds or 3, names), at)
            print(markdown_table([""] * 7, table), flush=True)
        header = ["model", "engine", "client-steps/s", "x plain", "ms per client-step", "of the floor", "target"]
        reached = f"a product reaches {at.operations / 1e12:.0f} TFLOP/s, a copy {at.bytes / 1e12:.2f} TB/s"
        about = f"{command}; {torch.cuda.get_device_name()}, torch {torch.__version__}, bf16; {reached}."
    publish(f"engines {options.device}", f"{about}\n\n{markdown_table(header, table)}", options)


if __name__ == "__main__":
    main()

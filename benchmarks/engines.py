"""How much faster the engines are than the plain loop, at the same work.

    python benchmarks/engines.py [--device cpu] [--model demo|resnet18] [--rounds N] [--only ENGINE ...]

On the CPU: the plain engine (one thread), two worker processes, Ray actors, and for comparison what was not built: a
pool of two threads. Each keeps its own clients; they take turns, window by window, in one run. The table gives
client-steps/s (median) and the median of the ratios to the plain engine's window of the same round. Targets on two
cores: parallel at least 1.7 times plain; Ray within 15 % of parallel.
"""

import argparse
import contextlib
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

from manyheads.algorithms.base import Algorithm
from manyheads.client import Client
from manyheads.engine import ENGINES
from manyheads.engine.base import Engine, Options, Progress, Window, WindowLosses
from manyheads.engine.parallel import usable_cores
from manyheads.engine.plain import Here, Plain
from manyheads.ensemble import Ensemble, assemble
from manyheads.snapshot import Replica, WeightsSnapshot
from step_overhead import experiment

WORKERS = 2
TARGETS = {"parallel": ("plain", 1.7), "ray": ("parallel", 0.85)}
SHAPES = {  # windows of some seconds
    "demo": {"clients": 8, "steps": 250, "rounds": 5},
    "resnet18": {"clients": 4, "steps": 1, "rounds": 3},
}


class Threads:
    """Not an engine: a window of each client in one of two threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, initializer=torch.set_num_threads, initargs=(1,))

    def train(
        self, clients: Sequence[Client], algorithm: Algorithm, window: Window, progress: Progress
    ) -> WindowLosses:
        found = list(self._pool.map(lambda client: Plain().train([client], algorithm, window, progress), clients))
        return WindowLosses(found[0].terms, torch.cat([own.values for own in found]), (True,) * len(clients))


def threads(ensemble: Ensemble, options: Options) -> Engine:
    made = Here(ensemble, Threads())
    made.exchange(step=0)
    for client in ensemble.clients:  # a replica holds one snapshot at a time: threads cannot share one
        own = Replica(client.make_model())
        shown = [entry for entry in client.pool.entries if isinstance(entry, WeightsSnapshot)]
        client.pool.entries = [replace(entry, replica=own) for entry in shown]
    return made


CPU: dict[str, Callable[[Ensemble, Options], Engine]] = {
    **{name: ENGINES[name] for name in ("plain", "parallel", "ray")},
    "threads": threads,
}


def on_the_cpu(model: str, rounds: int, names: Sequence[str]) -> dict[str, list[float]]:
    """Client-steps/s of each engine, round by round."""
    shape = SHAPES[model]
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        long = {"steps": 100_000}
        described = experiment(model, Path(folder)).with_values(clients=shape["clients"], training=long)
        engines = {}
        for name in names:
            options = Options(workers=WORKERS if name == "parallel" else None)
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


def ratio(found: dict[str, list[float]], name: str, to: str) -> float:
    return statistics.median(own / other for own, other in zip(found[name], found[to], strict=True))


def show(model: str, found: dict[str, list[float]]) -> None:
    for name, speeds in found.items():
        target = ""
        if name in TARGETS and TARGETS[name][0] in found:
            to, wanted = TARGETS[name]
            reached = ratio(found, name, to)
            target = f"{reached:.2f} x {to}, target {wanted}: {'met' if reached >= wanted else 'MISSED'}"
        print(f"{model:10} {name:10} {statistics.median(speeds):14.1f} {ratio(found, name, 'plain'):9.2f}   {target}")


PARTS = {"cpu": on_the_cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=sorted(PARTS), default="cpu")
    parser.add_argument("--model", choices=sorted(SHAPES))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="+", choices=sorted(CPU), default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in CPU if not arguments.only or name in (*arguments.only, "plain")]
    print(f"{platform.machine()}, {usable_cores()} cores, {torch.backends.cpu.get_cpu_capability()}; ", end="")
    print(f"torch {torch.__version__}")
    print(f"{'model':10} {'engine':10} {'client-steps/s':>14} {'x plain':>9}")
    for model in [arguments.model] if arguments.model else SHAPES:
        show(model, PARTS[arguments.device](model, arguments.rounds or SHAPES[model]["rounds"], names))


if __name__ == "__main__":
    main()

"""The growth of time and memory with clients, classes, heads, the public set and targets per step.

    python benchmarks/scaling.py [--device cpu|cuda] [--only clients,classes] [--write docs/measurements.md]

One knob at a time is moved away from 8 clients, 100 classes, 4 auxiliary heads, 4,000 public samples and one target. A
step is one of the whole ensemble: a private and a public batch for each client, its teachers and the update, on noise.
All settings of a knob take turns in one process; given are the medians of their times and of the ratios to the base in
the same turn. *Snapshots* is what all pools hold after they were filled anew. CPU: the plain engine, one thread, three
convolutions on images of 8 x 8, batches of 32 + 32; GPU: the cuda engine in bf16, a ResNet of width 16 with three
stages on 32 x 32, 128 + 128. Target: 64 clients cost at most 8.5 times as much as 8; snapshots grow with the clients.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import add_write, markdown_table, processor_name, publish
from manyheads import Experiment
from manyheads.config.as_printed import as_printed
from manyheads.engine.base import Window
from manyheads.engine.cuda.trainer import CudaTrainer
from manyheads.engine.plain import LocalEngine, PlainTrainer
from manyheads.setup.build import Ensemble, assemble

KNOBS: dict[str, list[int]] = {
    "clients": [2, 4, 8, 16, 32, 64],
    "classes": [10, 100, 1000],
    "auxiliary heads": [1, 4, 16],
    "public samples": [1_000, 4_000, 32_000],
    "targets per step": [1, 2, 4, 8],
}
BASE = {"clients": 8, "classes": 100, "auxiliary heads": 4, "public samples": 4_000, "targets per step": 1}
TARGET = 8.5  # 64 clients against 8
POOL = 8
SHAPES: dict[str, dict[str, Any]] = {
    "cpu": {"image": (8, 8, 1), "batch": 32, "model": {"backbone": "cnn", "width": 16}, "steps": 5, "turns": 5},
    "cuda": {
        "image": (32, 32, 3),
        "batch": 128,
        "model": {"backbone": "resnet8", "width": 16},
        "steps": 30,
        "turns": 3,
    },
}
PRIVATE = 64 * 160  # samples: enough for a batch of each of 64 clients


def experiment(values: dict[str, int], device: str, folder: Path) -> Experiment:
    """Return an experiment on noise with these numbers of clients, classes, heads, public samples and targets."""
    shape, samples = SHAPES[device], values["public samples"] + PRIVATE
    path = folder / f"noise-{values['classes']}-{samples}.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, size=(samples, *shape["image"]), dtype=np.uint8)
        labels = np.arange(samples) % values["classes"]
        np.savez(path, x_train=images, y_train=labels, x_test=images[:10], y_test=np.arange(10) % values["classes"])
    return Experiment(
        clients=values["clients"],
        data={
            "source": "npz",
            "path": str(path),
            "public_fraction": values["public samples"] / samples,
            "skew": 0.0,
            "augment": "crop-flip",
        },
        model={**shape["model"], "auxiliary_heads": values["auxiliary heads"]},
        algorithm=as_printed()["algorithm"] | {"targets_per_step": values["targets per step"], "pool_size": POOL},
        training={
            "balance": 0.0,
            "warmup_steps": 200,
            "steps": 100_000,
            "batch_size": shape["batch"],
            "public_batch_size": shape["batch"],
            "log_every": 100_000,
        },
    )


class Setting:
    """One setting of a knob, ready to be timed again and again."""

    def __init__(self, values: dict[str, int], device: str, folder: Path) -> None:
        self._steps: int = SHAPES[device]["steps"]
        self._done = 0
        self._ensemble = assemble(experiment(values, device, folder), device)
        on_gpu = device == "cuda"
        self._engine = LocalEngine(
            self._ensemble, CudaTrainer("bf16") if on_gpu else PlainTrainer(), "bf16" if on_gpu else "float32"
        )
        self._engine.exchange(step=0)
        for number in range(1, 3 * POOL):  # every entry is replaced, mostly more than once
            self._engine.exchange(100 * number)
        self.snapshots = _snapshot_bytes(self._ensemble)
        self.seconds()  # warm up: compile, capture

    def seconds(self) -> float:
        """Return the seconds of one step of the ensemble."""
        begun = time.perf_counter()
        self._engine.train(Window(self._done, self._done + self._steps), lambda _: None)
        self._done += self._steps
        return (time.perf_counter() - begun) / self._steps


def _snapshot_bytes(ensemble: Ensemble) -> int:
    """Return the bytes of all different snapshots in all pools."""
    entries = {id(entry): entry for client in ensemble.clients for entry in client.pool.entries}
    return sum(tensor.nbytes for entry in entries.values() for tensor in entry.tensors().values())


def measure(knob: str, device: str, folder: Path) -> list[list[str]]:
    """Return the rows of one knob."""
    settings = {value: Setting({**BASE, knob: value}, device, folder) for value in KNOBS[knob]}
    turns = [{value: s.seconds() for value, s in settings.items()} for _ in range(SHAPES[device]["turns"])]
    base, table = BASE[knob], []
    for value, setting in settings.items():
        ratio = statistics.median(turn[value] / turn[base] for turn in turns)
        snapshots = setting.snapshots / settings[base].snapshots
        verdict = ("met" if ratio <= TARGET else "missed") if (knob, value) == ("clients", 64) else ""
        table.append(
            [
                f"{value:,} {knob}",
                f"{1e3 * statistics.median(turn[value] for turn in turns):.2f}",
                f"{ratio:.2f}",
                f"{setting.snapshots / 1e6:.1f}",
                f"{snapshots:.2f}",
                verdict,
            ]
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=sorted(SHAPES), default="cpu")
    parser.add_argument("--only", help="some knobs, separated by commas")
    add_write(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = options.only.split(",") if options.only else list(KNOBS)
    table: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for knob in chosen:
            table += measure(knob, options.device, Path(folder))
            print(markdown_table([""] * 6, table[-len(KNOBS[knob]) :]), flush=True)
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{processor_name()}, one thread"
    only = f' --only "{options.only}"' if options.only else ""
    about = f"`python benchmarks/scaling.py --device {options.device}{only}`; {where}, torch {torch.__version__}."
    header = ["", "step, ms", "of the base", "snapshots, MB", "of the base", f"target {TARGET}"]
    publish(f"scaling {options.device}", f"{about}\n\n{markdown_table(header, table)}", options)


if __name__ == "__main__":
    main()

"""The memory that training from a packed folder takes, for data sets of 1x and 8x the size.

    python benchmarks/memory.py [--images 16384] [--write docs/measurements.md]

Noise of 64 x 64 x 3 pixels is packed; then a fresh process trains four clients on it. Shown are its largest anonymous
resident memory (RssAnon of /proc/self/status: what cannot be given back) and the part of the files that the kernel
keeps mapped (RssFile: given back when memory is short). Target: RssAnon does not grow with the data set.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from common import add_write, markdown_table, processor_name, publish
from manyheads import Experiment, train
from manyheads.config.as_printed import as_printed
from manyheads.config.data import DataConfig
from manyheads.data.pack import pack
from manyheads.training.observer import SilentObserver

SIDE, CLASSES, TIMES = 64, 10, (1, 8)


class Watch(SilentObserver):
    """An observer that remembers the largest sizes."""

    def __init__(self) -> None:
        self.most = {"RssAnon": 0, "RssFile": 0}

    def progressed(self, client_steps: int) -> None:
        status = Path("/proc/self/status").read_text()
        for name, most in self.most.items():
            found = re.search(rf"{name}:\s+(\d+) kB", status)
            assert found
            self.most[name] = max(most, int(found.group(1)))


def child(folder: str) -> None:
    """Train, and print the memory that it took, in kB."""
    experiment = Experiment(
        clients=4,
        data={"source": "packed", "path": folder, "public_fraction": 0.5, "augment": "crop-flip"},
        model={"backbone": "cnn", "width": 8, "auxiliary_heads": 2},
        algorithm=as_printed()["algorithm"] | {"pool_every": 20, "pool_size": 2},
        training={"balance": 0.0, "steps": 60, "warmup_steps": 5, "batch_size": 128, "public_batch_size": 128},
    )
    watch = Watch()
    train(experiment, observer=watch)
    print(json.dumps(watch.most))


def measure(count: int, root: Path) -> list[str]:
    """Pack a data set, train on it in a fresh process, and return a row of the table."""
    rng = np.random.default_rng(count)
    arrays = {
        f"{name}_{part}": rng.integers(0, 256, size=(size, SIDE, SIDE, 3), dtype=np.uint8)
        if name == "x"
        else np.arange(size) % CLASSES
        for part, size in (("train", count), ("test", count // 8))
        for name in ("x", "y")
    }
    np.savez(root / "noise.npz", **arrays)  # type: ignore[arg-type]
    folder = root / f"packed-{count}"
    pack(DataConfig(source="npz", path=str(root / "noise.npz")), folder, workers=2)
    command = [sys.executable, __file__, "--child", str(folder)]
    most = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    total = count * 9 // 8 * SIDE * SIDE * 3
    return [f"{count:,}", f"{total / 1e6:,.0f} MB", *(f"{most[name] / 1e3:,.1f} MB" for name in ("RssAnon", "RssFile"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=16_384)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    add_write(parser)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    with tempfile.TemporaryDirectory() as name:
        table = [measure(times * options.images, Path(name)) for times in TIMES]
    header = ["training images", "pixels", "RssAnon, largest", "RssFile, largest"]
    about = f"`python benchmarks/memory.py --images {options.images}`; {processor_name()}, torch {torch.__version__}."
    publish("memory", f"{about}\n\n{markdown_table(header, table)}", options)


if __name__ == "__main__":
    main()

"""The speed of packing against a bare Pillow loop, alternating in one run.

    python benchmarks/packing.py [--images 4000] [--workers 1 2 4 ...] [--rounds 3] [--write docs/measurements.md]

JPEG images of 500 x 375 pixels into 64 x 64. The bare loop is what somebody would write: one process, decode at the
draft size, resize, write all pixels into one file. Target: with w workers at most 1.2 / w of its time. Beside it stands
what the machine allows: w bare loops at once, each with its share of the images.
"""

import argparse
import io
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from common import add_write, markdown_table, processor_name, publish
from manyheads.config.data import DataConfig
from manyheads.data.pack import pack

SIZE, TARGET = 64, 1.2
DIFFERENT = 300  # images; the rest are copies of them


def make_images(folder: Path, count: int) -> None:
    """Make images that compress like photographs: smooth shapes with some noise, a few hundred over and over."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:375, 0:500]
    files = []
    for _ in range(min(count, DIFFERENT)):
        a, b, c = rng.uniform(0.005, 0.05, size=3)
        waves = np.stack([np.sin(a * x + b * y), np.sin(b * x - c * y), np.sin(c * x + a * y)], axis=-1)
        pixels = 127 + 80 * waves + rng.normal(0, 12, size=(375, 500, 1))
        buffer = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    for number in range(count):
        place = folder / f"class-{number % 2}"
        place.mkdir(exist_ok=True)
        (place / f"{number:06d}.jpg").write_bytes(files[number % len(files)])


def bare_loop(paths: Sequence[Path], out: Path) -> None:
    with out.open("wb") as file:
        for path in paths:
            with Image.open(path) as image:
                image.draft("RGB", (SIZE, SIZE))
                small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
            file.write(small.tobytes())


def seconds_of_bare_loops(folder: Path, out: Path, workers: int) -> float:
    """Return the seconds of one bare loop, or of several at once."""
    paths = sorted(folder.glob("*/*.jpg"))
    begun = time.perf_counter()
    if workers == 1:
        bare_loop(paths, out / "bare")
    else:
        fork = multiprocessing.get_context("fork")
        shares = [(paths[number::workers], out / f"bare-{number}") for number in range(workers)]
        processes = [fork.Process(target=bare_loop, args=share) for share in shares]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    return time.perf_counter() - begun


def seconds_to_pack(folder: Path, out: Path, workers: int) -> float:
    begun = time.perf_counter()
    pack(DataConfig(source="folder", path=str(folder), size=SIZE), out, workers=workers)
    return time.perf_counter() - begun


def compare(images: Path, root: Path, workers: int, rounds: int) -> list[str]:
    """Return a row of the table."""
    taken = [
        (
            seconds_of_bare_loops(images, root, 1),
            seconds_to_pack(images, root / f"packed-{workers}-{turn}", workers),
            seconds_of_bare_loops(images, root, workers),
        )
        for turn in range(rounds)
    ]
    bare, ours, _ = (statistics.median(column) for column in zip(*taken, strict=True))
    ratio, limit = (statistics.median(row[at] / row[0] for row in taken) for at in (1, 2))
    target = TARGET / workers
    verdict = "met" if ratio <= target else "missed"
    return [str(workers), f"{bare:.2f}", f"{ours:.2f}", f"{ratio:.3f}", f"{target:.3f}", verdict, f"{limit:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=4_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    add_write(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        images = root / "images"
        images.mkdir()
        make_images(images, options.images)
        seconds_of_bare_loops(images, root, 1)  # the files are in the page cache from here on
        table = []
        for workers in options.workers:
            table.append(compare(images, root, workers, options.rounds))
            print(" ".join(table[-1]), flush=True)
    header = ["workers", "bare loop, s", "packing, s", "ratio", "target", "", "as many bare loops at once, ratio"]
    workers = " ".join(map(str, options.workers))
    command = f"`python benchmarks/packing.py --images {options.images} --workers {workers}`"
    about = f"{command}, medians of {options.rounds} alternating rounds; {processor_name()}, {os.cpu_count()} cores."
    publish(f"packing {os.cpu_count()} cores", f"{about}\n\n{markdown_table(header, table)}", options)


if __name__ == "__main__":
    main()

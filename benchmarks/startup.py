"""The CPU time that the command line takes to answer help and mistakes: user and system seconds.

    python benchmarks/startup.py [--rounds N]

Each command line is a process of its own. The table gives the best and the median of the rounds. Target: at most 0.5.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from manyheads.studies.paper.cell_worker import processor_name

TARGET = 0.5
EXPERIMENT = 'clients = 4\n[data]\nsource = "digits"\n'
LINES = (
    "--help",
    "--version",
    *(f"{name} --help" for name in ("run", "resume", "reproduce", "pack")),
    "rum experiment.toml",
    "run experiment.toml --stepps 4",
    "run missing.toml",
    "run experiment.toml --engine turbo",
    "run experiment.toml --workers 2",
    "run experiment.toml --device tpu",
    "run experiment.toml --device cpu:7",
    "run experiment.toml --set algorithm.nu_auks=1.0",
    "run experiment.toml --set algorithm.nu_aux=much",
    "run experiment.toml --set algorithm.name=fedavg",
    "run experiment.toml --set training.steps",
    "run experiment.toml --set training.stepps=4",
    "run experiment.toml --set training.steps=-4",
    "run experiment.toml --set graph.name=ring",
    "run experiment.toml --set data.source=npz --set data.path=missing.npz",
    "run experiment.toml --set data.sorce=npz",
    "run experiment.toml --seeds 0",
    "run experiment.toml --out .",
    "frontier experiment.toml --set graph.name=islands --set graph.sice=2",
    "split experiment.toml --set data.source=folder --set data.path=missing",
    "pack missing packed --size 8",
    "resume missing",
    "compare missing",
    "evaluate missing",
    "export missing --client 3",
    "reproduce nothing",
    "reproduce heads --scale mnist",
    "reproduce heads --only nothing",
    "reproduce heads --toml",
    "reproduce heads --scale cifar100",
    "reproduce heads --scale imagenet --data missing",
)


def cpu_seconds(line: str, folder: str) -> tuple[float, int]:
    """Return the CPU seconds of one process, user and system, and its exit status."""
    null = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, "-m", "manyheads", *line.split()], cwd=folder, stdout=null, stderr=null)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "experiment.toml").write_text(EXPERIMENT)
        print(f"{processor_name()}; Python {platform.python_version()}; {rounds} rounds")
        print(f"{'manyheads ...':<76} exit   best median")
        for line in LINES:
            found = [cpu_seconds(line, folder) for _ in range(rounds)]
            seconds = [used for used, _ in found]
            mark = "" if min(seconds) <= TARGET else "  above the target"
            print(f"{line:<76} {found[0][1]:>4} {min(seconds):6.2f} {statistics.median(seconds):6.2f}{mark}")


if __name__ == "__main__":
    main()

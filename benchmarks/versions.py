"""Two versions of the code on the first steps of a cell: whether numbers are the same, and how long a step takes.

    git worktree add ../before REVISION
    python benchmarks/versions.py baselines "s = 100, MHD" --data FOLDER --against ../before [--steps 520] [--rounds 2]

Each version runs in processes of its own, in turns. Numbers are all that a run records (losses of every window, all
that is measured at the end, bytes), bit by bit, as a hash. The time of a step is that of the second half of the run, in
which normally nothing is compiled or captured any more, exchanges included. Where a change is meant to leave numbers
alone, this shows it before its code goes into `SAME_NUMBERS` (studies/paper/code_of_numbers.py): on the engine whose
code changed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from common import markdown_table

HERE = Path(__file__).resolve().parents[1]
MEASURED = ("step", "losses", "private_accuracy", "shared_accuracy", "by_hop", "chosen_by_class", "right_by_class")
PARTS = ("steps", "data", "exchange", "evaluation")


def in_this_process(options: argparse.Namespace) -> dict[str, Any]:
    """Run the cell's first steps with the version that Python finds."""
    import manyheads
    from manyheads import train
    from manyheads.studies.paper.code_of_numbers import code_of_numbers
    from manyheads.studies.paper.names import REPRODUCTIONS
    from manyheads.studies.paper.scales import SCALES
    from manyheads.training.observer import SilentObserver

    assert Path(manyheads.__file__).is_relative_to(options.alone), "Python found another version"
    scale, moments = SCALES[options.scale], list[tuple[int, float]]()

    class Watch(SilentObserver):
        def progressed(self, client_steps: int) -> None:
            moments.append((client_steps, time.perf_counter()))

    cell = scale.with_data(REPRODUCTIONS[options.name].cells(scale)[options.cell], options.data)
    values = {"steps": options.steps, "warmup_steps": options.steps // 10, "save_seconds": 3600.0}
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        summary = train(cell.with_values(training=values), folder, engine=options.engine, observer=Watch()).summary
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # What every version records under the same names.
    recorded = [{key: line[key] for key in MEASURED if key in line} for line in lines]
    recorded.append({"bytes_received": summary["bytes_received"]})
    middle = len(moments) // 2
    taken = sum(number for number, _ in moments[middle + 1 :]) / cell.clients
    return {
        "code": code_of_numbers(),
        "numbers": hashlib.sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()[:12],
        "ms": 1000.0 * (moments[-1][1] - moments[middle][1]) / taken,
        "seconds": summary["seconds"],
        "time": {part: summary["time"][part] for part in PARTS},
    }


def in_another_process(checkout: Path) -> dict[str, Any]:
    """Do the same with the version of a checkout and its own copy of this file: names may have changed in between."""
    given = os.environ.get("PYTHONPATH")
    search = os.pathsep.join([str(checkout / "src"), *([given] if given else [])])
    own = checkout / "benchmarks" / Path(__file__).name
    command = [sys.executable, str(own), *sys.argv[1:], "--alone", str(checkout)]
    ran = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": search}, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="of a reproduction, such as baselines")
    parser.add_argument("cell")
    parser.add_argument("--scale", default="cifar100")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--engine", default="cuda")
    parser.add_argument("--steps", type=int, default=520)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--against", type=Path, help="the root of another checkout")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        return print(json.dumps(in_this_process(options)))
    if options.against is not None and not (options.against / "src" / "manyheads").is_dir():
        parser.error(f"--against {options.against}: not the root of a checkout of manyheads")
    checkouts = {"this": HERE} | ({} if options.against is None else {"the other": options.against.resolve()})
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            found[name].append(in_another_process(checkout))
    table = [
        [
            name,
            runs[0]["code"],
            ", ".join(sorted({run["numbers"] for run in runs})),
            f"{median(run['ms'] for run in runs):.2f}",
            *(f"{median(run['time'][part] for run in runs):.1f}" for part in PARTS),
            f"{median(run['seconds'] for run in runs):.1f}",
        ]
        for name, runs in found.items()
    ]
    print(
        markdown_table(["version", "code", "numbers", "ms/step", *(f"{part}, s" for part in PARTS), "in all, s"], table)
    )


if __name__ == "__main__":
    main()

"""FedAvg in manyheads, in Flower's simulation, in fluke, and in a loop written by hand: seconds and memory.

    python benchmarks/compare_rivals.py [--workload demo|resnet18] [--engine parallel] [--rounds-of-measurement 3]
                               [--envs ~/.cache/manyheads/rivals] [--write docs/measurements.md]

All train the same model from the same initial weights on the same saved partition, with equal batch size, local steps,
rounds and optimizer, one thread per process. Each runs as a process of its own (benchmarks/rivals/), Flower and fluke
in an environment that is made once; they take turns, and the table gives medians.

Seconds are those of the rounds: from the end of the first to the end of the last, scaled up to all of them. So nobody
pays for imports, for reading data, for starting workers or for warming up. The whole run has the first round and what
starts with it: Ray's processes and their imports in Flower, workers in ours. Nothing is evaluated in a counted round.
Memory is the largest sum over all processes of a run (PSS: what several share is counted once), looked at twice a
second; it includes imports and data. Accuracy is on the test set, to see that all train the same thing.

"Busy cores": the loop by hand on each core at the same time, its seconds divided by the cores: what these cores can do
when all of them compute, which is less than what one does alone.

Target: ours ahead of every other system, and at most 1.1 times the loop by hand divided by the cores that we use.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from common import add_write, markdown_table, processor_name, publish
from manyheads.config.data import DataConfig
from manyheads.config.experiment import ModelConfig
from manyheads.data.loading import load
from manyheads.models.client_model import make_model
from manyheads.seeds import EVERYONE, generator

TARGET = 1.1
LIMIT = 1_800  # seconds after which a run has failed
EVERY = 0.5  # seconds between two looks at memory

VERSIONS = {
    "torch": "2.13.0",  # the one of constraints.txt
    # 1.42.0 wants certifi>=2026.10.19, which the index that we use lacks. Its simulation, strategies, Ray backend and
    # in-memory grid are the same files.
    "flwr[simulation]": "1.41.0",  # brings its own pinned Ray
    "fluke-fl": "0.8.1",
    "numpy": "2.4.6",
    "pydantic": "2.14.3",
    "safetensors": "0.8.0",
    "tomli-w": "1.2.0",
    "cerberus": "1.3.8",
    "diskcache": "5.6.3",
    "matplotlib": "3.11.2",
    "omegaconf": "2.4.0",
    "pandas": "3.1.1",
    "psutil": "7.2.2",
    "rich": "15.0.0",
    "scikit-learn": "1.9.1",
    "seaborn": "0.13.2",
    "torchmetrics": "1.9.0",
}
MODEL = ("torch", "numpy", "pydantic", "safetensors", "tomli-w")  # what the models of manyheads import
# fluke lists torchvision (which cannot be imported beside a CPU build of torch from elsewhere) and loggers such as
# wandb among its requirements. Its FedAVG imports neither: it is installed without requirements, then those it imports.
FLUKE = ("cerberus", "diskcache", "matplotlib", "omegaconf", "pandas", "psutil", "rich", "scikit-learn", "seaborn")
INSTALL: dict[str, list[tuple[str, ...]]] = {  # calls of pip; systems that are not here run in this interpreter
    "flower": [("flwr[simulation]", *MODEL)],
    "fluke": [("--no-deps", "fluke-fl"), (*FLUKE, "torchmetrics", *MODEL)],
}
SYSTEMS = {
    "manyheads": "manyheads",
    "bare": "by hand",
    "busy": "by hand, busy cores",
    "fluke": "fluke",
    "flower": "Flower",
}

# No momentum: Flower's clients would forget it after each round, the others' would not.
COMMON = {"seed": 0, "clients": 8, "classes": 10, "batch_size": 32, "momentum": 0.0, "weight_decay": 5e-4}
WORKLOADS: dict[str, dict[str, Any]] = {
    "demo": {"backbone": "cnn", "width": 16, "samples": 160, "local_steps": 100, "rounds": 20, "learning_rate": 0.1},
    "resnet18": {
        "backbone": "resnet18", "width": 16, "samples": 128, "local_steps": 8, "rounds": 4, "learning_rate": 0.1,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Images:
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]


def images_of(name: str) -> Images:
    """The built-in digits; or colour images of 32 x 32 pixels, coarse patches for each class under noise."""
    if name == "demo":
        found = load(DataConfig(source="digits"))
        parts = [(part.images, part.known_labels) for part in (found.train, found.test)]
        return Images(*parts[0], *parts[1])
    rng = np.random.default_rng(0)
    labels = np.arange(1_144) % 10
    patterns = rng.normal(0.0, 60.0, size=(10, 4, 4, 3)).repeat(8, axis=1).repeat(8, axis=2)
    noisy = patterns[labels] + rng.normal(127.5, 30.0, size=(len(labels), 32, 32, 3))
    images = noisy.clip(0, 255).astype(np.uint8)
    return Images(images[:1_024], labels[:1_024], images[1_024:], labels[1_024:])


def partition(labels: NDArray[np.int64], clients: int, samples: int) -> NDArray[np.int64]:
    """Half of a client's samples are of one or two labels, the other half of any. All have equally many."""
    order = np.random.default_rng(0).permutation(len(labels))[: clients * samples]
    half = len(order) // 2
    of_few = order[:half][np.argsort(labels[order[:half]], kind="stable")]
    return np.concatenate([of_few.reshape(clients, -1), order[half:].reshape(clients, -1)], axis=1)


def save_workload(name: str, settings: dict[str, Any], folder: Path) -> None:
    """Save arrays, the partition, settings and initial weights for all; for us also a file of samples per client."""
    data = images_of(name)
    chosen = partition(data.y_train, settings["clients"], settings["samples"])
    np.savez(folder / "workload.npz", clients=chosen, **vars(data))
    (folder / "settings.json").write_text(json.dumps(settings))
    height, width, channels = data.x_train.shape[1:]
    config = ModelConfig(backbone=settings["backbone"], width=settings["width"])
    rng = generator(settings["seed"], "weights", EVERYONE)
    model = make_model(config, image_shape=(height, width, channels), heads=1, classes=settings["classes"], rng=rng)
    weights = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    safetensors.torch.save_file(weights, folder / "weights.safetensors")
    (folder / "clients").mkdir()
    for client, own in enumerate(chosen):
        tests = slice(client, None, settings["clients"])
        np.savez(
            folder / "clients" / f"client-{client:02}.npz",
            x_train=data.x_train[own],
            y_train=data.y_train[own],
            x_test=data.x_test[tests],
            y_test=data.y_test[tests],
            class_names=np.arange(settings["classes"]).astype(str),
        )


def interpreter(system: str, envs: Path) -> Path:
    """The python of a system's environment, which is made where it is missing or of other versions."""
    if system not in INSTALL:
        return Path(sys.executable)
    calls = [[n if n.startswith("--") else f"{n}=={VERSIONS[n]}" for n in names] for names in INSTALL[system]]
    folder, wanted = envs / system, json.dumps(calls)
    python, ready = folder / "bin" / "python", folder / "ready.json"
    if not (ready.exists() and ready.read_text() == wanted):
        print(f"{SYSTEMS[system]}: making {folder}", flush=True)
        if folder.exists():
            shutil.rmtree(folder)
        log = envs / "logs" / f"install-{system}.log"
        run_logged([sys.executable, "-m", "venv", str(folder)], log)
        for call in calls:
            run_logged([str(python), "-m", "pip", "install", "--disable-pip-version-check", *call], log)
        ready.write_text(wanted)
    return python


class RemoteError(Exception):
    """A system could not be installed or run."""


def run_logged(command: list[str], log: Path) -> None:
    with log.open("a") as out:
        if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT).returncode:
            raise RemoteError(last_line(log))


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1][:200] if lines else 'no output'} ({log})"


def family(first: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [first]
    for process in found:
        found += children.get(process, [])
    return found


def memory(processes: list[int]) -> int:
    """The sum of their PSS, in kB."""
    total = 0
    for process in processes:
        try:
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        total += int(found.group(1)) if found else 0
    return total


def measure(command: list[str], log: Path) -> dict[str, Any]:
    """Run a driver; what it printed, and the largest memory of all its processes."""
    here = Path(__file__).parent
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    paths = {"PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "src")])}
    most, begun = 0, time.perf_counter()
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **quiet, **threads, **paths}
        )
        try:
            while process.poll() is None:
                most = max(most, memory(family(process.pid)))
                if time.perf_counter() - begun > LIMIT:
                    raise RemoteError(f"stopped after {LIMIT} s; {last_line(log)}")
                time.sleep(EVERY)
        finally:
            if process.poll() is None:
                stop(process)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"version"')]
    if process.returncode or not lines:
        raise RemoteError(last_line(log))
    return {**json.loads(lines[-1]), "memory": most}


def measure_busy(command: list[str], log: Path, cores: int) -> dict[str, Any]:
    """The same driver on every core at once; as if its work had been dealt out without any loss."""
    with ThreadPoolExecutor(cores) as pool:
        logs = [log.with_suffix(f".{number}.log") for number in range(cores)]
        copies = list(pool.map(measure, [command] * cores, logs))
    shared = {key: statistics.mean(copy[key] for copy in copies) / cores for key in ("seconds", "whole")}
    return {**copies[0], **shared, "cores": cores, "memory": sum(copy["memory"] for copy in copies)}


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a driver and what it started."""
    for one in reversed(family(process.pid)):
        try:
            os.kill(one, 9)
        except ProcessLookupError:
            continue
    process.wait()


def measure_all(name: str, options: argparse.Namespace) -> dict[str, list[dict[str, Any]] | str]:
    """Return the results of all turns of each system, or why there are none."""
    settings = {**COMMON, **WORKLOADS[name], "cores": len(os.sched_getaffinity(0))}
    if options.rounds:
        settings["rounds"] = options.rounds
    found: dict[str, list[dict[str, Any]] | str] = {system: [] for system in options.systems}
    with tempfile.TemporaryDirectory() as folder:
        save_workload(name, settings, Path(folder))
        for turn in range(options.rounds_of_measurement):
            for system in options.systems:
                results = found[system]
                if isinstance(results, str):
                    continue
                log = options.envs / "logs" / f"{name}-{system}-{turn}.log"
                try:
                    python = interpreter(system, options.envs)
                    if system == "busy":
                        command = [str(python), "-m", "rivals.bare_run", folder]
                        results.append(measure_busy(command, log, settings["cores"]))
                    else:
                        engine = [options.engine] if system == "manyheads" else []
                        results.append(measure([str(python), "-m", f"rivals.{system}_run", folder, *engine], log))
                except (RemoteError, OSError) as error:
                    found[system] = str(error)
                    print(f"{name}, {SYSTEMS[system]}: failed: {error}", flush=True)
                else:
                    print(f"{name}, {SYSTEMS[system]}, turn {turn + 1}: {json.dumps(results[-1])}", flush=True)
    return found


def medians(results: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {key: statistics.median(r[key] for r in results) for key in ("seconds", "whole", "memory", "accuracy")}
    return {**results[0], **numbers}


def table(name: str, found: dict[str, list[dict[str, Any]] | str], options: argparse.Namespace) -> str:
    settings, lines = {**COMMON, **WORKLOADS[name]}, []
    done = {system: medians(r) for system, r in found.items() if not isinstance(r, str)}
    for system in found:
        label = f"manyheads, {options.engine}" if system == "manyheads" else SYSTEMS[system]
        if system not in done:
            lines.append([label, f"failed: {str(found[system]).replace('|', '/')}", *[""] * 8])
            continue
        own = done[system]
        steps = settings["clients"] * settings["local_steps"] * own["rounds"]
        ratios = [f"{own['seconds'] / done[to]['seconds']:.2f}" if to in done else "" for to in ("bare", "manyheads")]
        shown = [
            own["version"],
            str(own["cores"]),
            f"{own['seconds']:.1f}",
            f"{own['whole']:.1f}",
            f"{steps / own['seconds']:,.1f}",
            f"{own['memory'] / 1e3:,.0f} MB",
            f"{100 * own['accuracy']:.1f} %",
        ]
        lines.append([label, *shown, *ratios])
    header = ["", "version", "cores", "seconds", "whole run, s", "client-steps/s", "memory", "accuracy"]
    rounds = options.rounds or settings["rounds"]
    about = (
        f"{name}: {settings['backbone']} of width {settings['width']}, {settings['clients']} clients of "
        f"{settings['samples']} samples, {rounds} rounds of {settings['local_steps']} steps, batches of "
        f"{settings['batch_size']}. {verdict(done)}"
    )
    return f"{about}\n\n{markdown_table([*header, 'of by hand', 'of manyheads'], lines)}"


def verdict(done: dict[str, dict[str, Any]]) -> str:
    """Say whether the target is met."""
    if "manyheads" not in done or "bare" not in done:
        return "The target cannot be judged."
    ours, others = done["manyheads"], [own for system, own in done.items() if system not in ("manyheads", "busy")]
    ahead = all(ours["seconds"] < own["seconds"] for own in others)
    ratio = ours["seconds"] / (done["bare"]["seconds"] / ours["cores"])
    words = {True: "met", False: "MISSED"}
    builds = sorted({own["torch"] for own in done.values()})
    differ = f" Not all ran on the same torch: {', '.join(builds)}." if len(builds) > 1 else ""
    busy = f" Of busy cores: {ours['seconds'] / done['busy']['seconds']:.2f}." if "busy" in done else ""
    missing = ", ".join(SYSTEMS[system] for system in SYSTEMS if system not in done)
    return (
        f"Ahead of every other system{f' that ran (not: {missing})' if missing else ''}: {words[ahead]}. Against the "
        f"loop by hand divided by {ours['cores']} core(s): {ratio:.2f}, at most {TARGET:.2f}: {words[ratio <= TARGET]}."
        f"{busy}{differ}"
    )


def main() -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="default: both")
    parser.add_argument("--engine", default="parallel", help="of manyheads")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--rounds-of-measurement", type=int, default=3, metavar="N", help="turns of each system")
    parser.add_argument("--rounds", type=int, help="of training, at least 2; default: those of the workload")
    parser.add_argument("--envs", type=Path, default=cache / "manyheads" / "rivals", help="environments and logs")
    add_write(parser)
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 2:
        parser.error("--rounds: at least 2, since the first is not counted")
    options.envs = options.envs.absolute()
    (options.envs / "logs").mkdir(parents=True, exist_ok=True)
    names = [options.workload] if options.workload else list(WORKLOADS)
    found = {name: measure_all(name, options) for name in names}
    cores = len(os.sched_getaffinity(0))
    python = ".".join(map(str, sys.version_info[:3]))
    only = f" --workload {options.workload}" if options.workload else ""
    about = (
        f"`python benchmarks/compare_rivals.py --engine {options.engine}{only}`, medians of "
        f"{options.rounds_of_measurement}; {processor_name()}, {cores} cores, torch {torch.__version__}, "
        f"one thread per process, Python {python}."
    )
    publish("rivals", "\n\n".join([about, *(table(name, found[name], options) for name in names)]), options)


if __name__ == "__main__":
    main()

"""What each step beyond the paper is worth, alone and together, on validation data: how the defaults were chosen.

    python benchmarks/beyond.py [--data digits|fashion|photos] [--seeds 3] [--only NAME ...]

`digits` is the demonstration. `fashion` is Fashion-MNIST as a newcomer may meet it: 12,000 of its training images
(Debian's package dataset-fashion-mnist, or --files FOLDER), six clients with three of ten labels each, s = 100, 20 %
public, the demonstration's network and batches, 600 steps, one target. `photos` is a part of CIFAR-100 (--files
cifar100.npz, see docs/data.md) that two cores can learn: 20 classes at 16 x 16 pixels, four clients with ten of them,
s = 100, 10 % public, a ResNet-18 of width 16, 1,500 steps of 64 + 64, crops and flips. *Private* is
the head that validation data recommend, on the same validation data; *right* is how often a teacher was right, by head,
and *missed* how often it was wrong where another candidate was right.
"""

import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from common import FASHION, hardware, markdown_table, parser_for, run_all, write_fashion
from manyheads import Experiment
from manyheads.config.as_printed import as_printed
from manyheads.evaluation.head_choice import Recommendation
from manyheads.runs.summary import Summary
from manyheads.studies.demo import demo_experiment

CLASSES = 20  # of `photos`
NONE, LATE = {"hold": 0.0, "rise": 0.0}, {"hold": 0.3, "rise": 0.5}


def variants(base: Experiment) -> dict[str, Experiment]:
    """Return the base by name: as printed, with each step beyond it, with all of them, and with all but one."""
    pinned = as_printed()["algorithm"] | {"pool_every": max(1, base.training.steps // 300)}
    printed = base.with_values(algorithm=pinned, training={"balance": 0.0})
    steps: dict[str, dict[str, Any]] = {
        "balance": {"training": {"balance": 1.0}},
        "pull": {"algorithm": {"nu_emb": 0.1, "nu_aux": 10.0, "pull": 3.0, "pull_ramp": LATE, "ramp": NONE}},
        "balance, own labels": {"algorithm": {"own_labels": 1.0}, "training": {"balance": 1.0}},
        "mixture": {"algorithm": {"select": "mixture", "sharpness": 8.0, "remember": None}},
        "density": {"algorithm": {"confidence": "density"}},
        "the surest asked": {"algorithm": {"ask": "surest"}},
    }
    without: dict[str, dict[str, Any]] = {
        "balance": {"training": {"balance": 0.0}, "algorithm": {"own_labels": 1.0}},
        "balance and own labels": {"training": {"balance": 0.0}},
        "pull": {"algorithm": {key: pinned[key] for key in ("nu_emb", "nu_aux", "pull", "pull_ramp", "ramp")}},
        "own labels": {"algorithm": {"own_labels": 0.0}},
        "mixture": {"algorithm": {"select": "most_confident"}},
        "remember": {"algorithm": {"remember": 0.0}},
        "density": {"algorithm": {"confidence": "max_probability"}},
    }
    alone = base.with_values(algorithm={"name": "separate"})
    own = {"algorithm": {"own_labels": 1.0}}
    faster = {
        f"{name}, {times} times the learning rate": one.with_values(
            training={"learning_rate": times * base.training.learning_rate}
        )
        for times in (4, 10)
        for name, one in (("separate", alone), ("defaults", base), ("own_labels = 1", base.with_values(**own)))
    }
    return {
        "separate, balance = 0": alone.with_values(training={"balance": 0.0}),
        "separate": alone,
        "as printed, with a ramp": printed,
        **{f"as printed, {name}": printed.with_values(**change) for name, change in steps.items()},
        "defaults": base,
        **{f"defaults without {name}": base.with_values(**change) for name, change in without.items()},
        "defaults, pull = 0": base.with_values(algorithm={"pull": 0.0, "nu_emb": 0.0}),
        "defaults, pull = 1": base.with_values(algorithm={"pull": 1.0}),
        "defaults, pull = 10": base.with_values(algorithm={"pull": 10.0}),
        "defaults, no ramp": base.with_values(algorithm={"pull_ramp": NONE}),
        "defaults, no ramp, pull = 0.3": base.with_values(algorithm={"pull_ramp": NONE, "pull": 0.3}),
        "defaults, ramp of 0.1/0.3": base.with_values(algorithm={"pull_ramp": {"hold": 0.1, "rise": 0.3}}),
        "defaults, remember = 0.9": base.with_values(algorithm={"remember": 0.9}),
        "defaults, drawn": base.with_values(algorithm={"ask": "drawn"}),
        "defaults, drawn, nothing remembered": base.with_values(algorithm={"ask": "drawn", "remember": 0.0}),
        "defaults, the surest asked": base.with_values(algorithm={"ask": "surest"}),
        "defaults, the surest asked, nothing remembered": base.with_values(
            algorithm={"ask": "surest", "remember": 0.0}
        ),
        "defaults, two targets": base.with_values(algorithm={"targets_per_step": 2}),
        "oracle instead of mixture": base.with_values(algorithm={"select": "oracle"}),
        "FedMD, twice the steps": base.with_values(
            algorithm={"name": "fedmd"}, training={"steps": 2 * base.training.steps}
        ),
        "FedAvg": base.with_values(algorithm={"name": "averaging"}),
        "defaults, own_labels = 0.1": base.with_values(algorithm={"own_labels": 0.1}),
        **faster,
    }


def fashion(files: Path, folder: Path) -> Experiment:
    write_fashion(files, folder / "fashion.npz")
    data = {"source": "npz", "path": str(folder / "fashion.npz"), "public_fraction": 0.2}
    return demo_experiment().with_values(clients=6, data=data)


def photos(files: Path, folder: Path) -> Experiment:
    """Write some classes of CIFAR-100, each pixel the mean of four, and return the experiment that learns them."""
    every = np.load(files)
    chosen = np.sort(np.random.default_rng(7).choice(100, CLASSES, replace=False))
    made = {}
    for part in ("train", "test"):
        labels = every[f"y_{part}"]
        images = every[f"x_{part}"][np.isin(labels, chosen)].reshape(-1, 16, 2, 16, 2, 3)
        made[f"x_{part}"] = images.mean((2, 4)).round().astype(np.uint8)
        made[f"y_{part}"] = np.searchsorted(chosen, labels[np.isin(labels, chosen)])
    np.savez(folder / "photos.npz", **made)
    return Experiment(
        clients=4,
        data={
            "source": "npz",
            "path": str(folder / "photos.npz"),
            "validation_fraction": 0.2,
            "primary_labels": {"per_client": CLASSES // 2},
        },
        model={"backbone": "resnet18", "width": 16},
        training={"steps": 1_500, "batch_size": 64, "public_batch_size": 64, "learning_rate": 0.05},
    )


def row(name: str, summaries: list[Summary]) -> list[str]:
    """Return validation accuracies, and how often teachers were right or the right one was missed, means over seeds."""
    judged = [(summary.validation, summary.deploy) for summary in summaries]
    private = mean(
        (of.private_with_prior if deploy.prior and of.private_with_prior else of.private_accuracy)[deploy.private]
        for of, deploy in ((of, deploy or Recommendation(0, 0)) for of, deploy in judged if of is not None)
    )
    heads = range(len(summaries[0].shared_accuracy))
    shared = [mean(of.shared_accuracy[head] for of, _ in judged if of is not None) for head in heads]
    counts = [(s.taught, s.taught.own_right, s.taught.others_right) for s in summaries if s.taught is not None]
    right = [
        mean((own[k] + sum(others[k])) / (t.own[k] + sum(t.others[k])) for t, own, others in counts if own and others)
        for k in range(len(heads) - 1)
        if counts
    ]
    known = [(t, t.missed) for t, _, _ in counts if t.missed is not None]
    missed = [mean(of[k] / (t.own[k] + sum(t.others[k])) for t, of in known) for k in range(len(heads) - 1) if known]
    by_head = (", ".join(f"{100 * x:.1f}" for x in values) for values in (shared, right, missed))
    return [name, f"{100 * private:.1f}", *by_head]


def chosen(made: Mapping[str, Experiment], options: Namespace) -> dict[str, Experiment]:
    return {name: experiment for name, experiment in made.items() if not options.only or name in options.only}


def main() -> None:
    parser = parser_for(__doc__)
    parser.add_argument("--data", choices=("digits", "fashion", "photos"), default="digits")
    parser.add_argument("--files", type=Path, default=FASHION, help="the images of fashion or photos")
    parser.add_argument("--only", nargs="*", help="some of the settings, by name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = {"fashion": fashion, "photos": photos}.get(options.data)
        base = demo_experiment() if made is None else made(options.files, Path(folder))
        base = base.with_values(evaluate={"every": base.training.steps})
        found = run_all(chosen(variants(base), options), options)
    print(f"{hardware()}; {options.data}, seeds {options.first} to {options.first + options.seeds - 1}\n")
    shared = "shared: main head, then head by head"
    head = ["validation, %", "private", shared, "teachers right, by head", "right one missed, by head"]
    print(markdown_table(head, [row(name, summaries) for name, summaries in found.items()]))


if __name__ == "__main__":
    main()

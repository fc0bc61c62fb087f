"""The three sizes at which the paper is reproduced: digits (seconds), CIFAR-100 (minutes on a GPU), ImageNet (its own).

A scale consists of one experiment, from which every cell is made (MHD at s = 100 with four auxiliary heads on a
complete graph), and of the few numbers that cannot be derived from it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.config.as_printed import as_printed
from manyheads.config.experiment import Experiment

Values = dict[str, Any]
PRINTED = as_printed()["algorithm"]  # whatever the defaults are today


@dataclass(frozen=True)
class Scale:
    """A size at which the paper is reproduced."""

    name: str
    about: str
    mhd: Experiment
    grid: Values  # `[model]` of a grid of many cells
    small: Values  # `[model]` of the small and of the large clients among which models differ
    large: Values
    classes: int
    # Points: how much a part of a claim usually deviates over seeds at this scale (tests/studies/paper/test_claims.py).
    doubt: float = 0.0
    data_option: str = ""  # the option that a command line needs for the data
    in_folder: bool = False  # --data is a folder of files; otherwise it is itself what is read
    several_seeds: bool = False  # if a table asks for them
    for_gpu: bool = True
    estimated: bool = False  # an estimate of the time is shown before it starts
    fedmd: Values = field(default_factory=dict)  # what the comparison with FedMD reads and trains

    @property
    def pool_every(self) -> int:
        return int(self.mhd.algorithm.options()["pool_every"])

    @property
    def schedule(self) -> str:
        ramp = self.mhd.algorithm.options()["ramp"]
        return f"a pool every {self.pool_every} steps, ramp {ramp['hold']:g}/{ramp['rise']:g}"

    def differing_keys(self, cell: Experiment) -> Values:
        """Return the keys in which a cell differs from the experiment of the scale."""
        usual = self.mhd.keys()
        return {key: value for key, value in cell.keys().items() if usual.get(key) != value}

    def longer(self, times: int) -> Values:
        return {"steps": times * self.mhd.training.steps}

    def with_data(self, experiment: Experiment, data: Path | None) -> Experiment:
        """Return an experiment that reads its data from `data`."""
        if experiment.data.path is None:
            return experiment
        data = data or Path()
        public = experiment.data.public
        values: Values = {"path": str(data / experiment.data.path if self.in_folder else data)}
        if not isinstance(public, str | None):
            values["public"] = public.model_copy(update={"path": str(data / str(public.path))}).model_dump()
        return experiment.with_values(data=values)


DIGITS = Scale(
    name="digits",
    about="8 x 8 digits of scikit-learn (1,437 for training, 360 for testing), 8 clients with 3 random labels each, "
    "30 % public, three convolutions of width 16, 600 steps, one target, four heads (the demonstration has two and "
    "three)",
    mhd=Experiment(
        clients=8,
        data={
            "source": "digits",
            "public_fraction": 0.3,
            "validation_fraction": 0.1,
            "primary_labels": {"per_client": 3},
            "augment": "none",
        },
        model={"backbone": "cnn", "width": 16, "auxiliary_heads": 4},
        algorithm=PRINTED | {"pool_size": 8, "pool_every": 2, "ramp": {"hold": 0.1, "rise": 0.3}},
        training={
            "steps": 600,
            "batch_size": 32,
            "public_batch_size": 32,
            "learning_rate": 0.03,
            "warmup_steps": 30,
            "balance": 0.0,
        },
        evaluate={"every": 1_000_000},
    ),
    grid={},
    small={"backbone": "cnn", "width": 8},
    large={"backbone": "cnn", "width": 32},
    classes=10,
    doubt=0.8,
    for_gpu=False,
    fedmd={
        "model": {},
        "data": {},
        "pooled": {},
        "algorithm": {"first_private_steps": 60, "digest_steps": 60, "revisit_steps": 54},
        "learning_rate": 0.05,
    },
)
CIFAR100 = Scale(
    name="cifar100",
    about="CIFAR-100 (for the results here re-encoded as AVIF, quality 92), 8 clients with 25 random labels each, 10 % "
    "public, ResNet-18 of width 32, 4,000 steps, one target, four heads",
    mhd=Experiment(
        clients=8,
        data={"source": "npz", "path": "cifar100.npz", "primary_labels": {"per_client": 25}},
        model={"backbone": "resnet18", "width": 32},
        algorithm=PRINTED | {"pool_size": 8, "pool_every": 13, "ramp": {"hold": 0.2, "rise": 0.4}},
        # A cell takes little more than a minute on an H200, and its pools are new as a whole from one save to the next.
        training={
            "steps": 4_000,
            "learning_rate": 0.05,
            "warmup_steps": 200,
            "balance": 0.0,
            "save_seconds": 200.0,
            "log_every": 52,  # with every fourth new pool, so that no window is cut for it
        },
        evaluate={"every": 1_000_000},
    ),
    grid={"backbone": "resnet8", "width": 16},
    small={"backbone": "resnet18", "width": 32},
    large={"backbone": "resnet34", "width": 32},
    classes=100,
    doubt=0.3,
    data_option=" --data FOLDER",
    in_folder=True,
    several_seeds=True,
    fedmd={
        "clients": 10,
        "data": {
            "label": "coarse",
            "fine_label": "y",
            "partition": "fine",
            "public": {"source": "npz", "path": "cifar10.npz"},
        },
        "pooled": {"primary_labels": {"per_client": 5}},  # of 20 coarse labels; whose they are decides nothing at s = 0
        "model": {
            "backbone": [f"fedmd{number}" for number in range(10)],
            "auxiliary_heads": 3,
            "heads_see": "feature_map",  # as published
        },
        "algorithm": {"first_private_steps": 400, "digest_steps": 400, "revisit_steps": 360},
        "learning_rate": 0.05,
    },
)
IMAGENET = Scale(
    name="imagenet",
    about="packed ImageNet, 8 clients with 250 random labels each, 10 % public, ResNet-34, 60,000 steps of 512 + 512: "
    "the paper's own settings",
    mhd=Experiment(
        clients=8,
        data={
            "source": "packed",
            "path": "imagenet",
            "public": "fraction",
            "primary_labels": {"per_client": 250},
            "augment": "resized-crop-flip",
        },
        model={"backbone": "resnet34", "stem": "large"},
        algorithm=PRINTED | {"pool_size": 8, "pool_every": 200, "ramp": {"hold": 0.0, "rise": 0.0}},
        training={
            "steps": 60_000,
            "batch_size": 512,
            "public_batch_size": 512,
            "learning_rate": 0.1,
            "warmup_steps": 0,
            "balance": 0.0,
            "log_every": 10,  # a step takes about a second on an H200, and a stop drops what follows the last line
        },
        evaluate={"every": 5_000},
    ),
    grid={},
    small={"backbone": "resnet18"},
    large={"backbone": "resnet34"},
    classes=1000,
    data_option=" --data PACKED",
    estimated=True,
)
SCALES = {scale.name: scale for scale in (DIGITS, CIFAR100, IMAGENET)}

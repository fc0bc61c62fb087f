"""The cells of the gauntlet: data, clients and circumstances as a user would describe them, and nothing tuned.

What is set follows from a few rules, the same for all. A *small* cell has pictures of digits or clothes, small
networks, and batches of 32 with the demonstration's learning rate; a *large* one has CIFAR, ResNets, and the default
batches and rate. Everything else is manyheads' default, the number of heads included. `gauntlet_search.py` found the
design.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

from manyheads import Experiment
from manyheads.config.as_printed import as_printed
from manyheads.studies.beside import SUPERVISED, experiment_for

Values = dict[str, Any]
PARTITIONS: dict[str, Values] = {
    "s = 0": {"skew": 0.0},
    "s = 10": {"skew": 10.0},
    "s = 100": {"skew": 100.0},
    "s = inf": {"skew": inf},
    "Dirichlet 0.1": {"partition": "dirichlet", "alpha": 0.1},
}
EXCHANGES: dict[str, Values] = {"weights": {}, "top 3": {"exchange": "predictions", "top_k": 3}}


@dataclass(frozen=True)
class DataSet:
    """A data set, and what a user has to say about it."""

    size: str  # of the cells that read it
    keys: Values  # of [data]; a path is the name of a file
    public: int  # samples that `public_fraction` makes
    primary: int  # labels that are primary at a client: three of ten, or a quarter of more


DATA = {
    "digits": DataSet("small", {"source": "digits", "public_fraction": 0.3}, 431, 3),
    "MNIST": DataSet("small", {"source": "npz", "path": "mnist.npz", "public_fraction": 0.2}, 800, 3),
    "Fashion-MNIST": DataSet("small", {"source": "npz", "path": "fashion.npz", "public_fraction": 0.1}, 1_200, 3),
    "CIFAR-10": DataSet("large", {"source": "npz", "path": "cifar10.npz", "public_fraction": 0.2}, 3_200, 3),
    "CIFAR-100": DataSet("large", {"source": "npz", "path": "cifar100.npz", "public_fraction": 0.1}, 5_000, 25),
    "coarse CIFAR-100": DataSet(
        "large", {"source": "npz", "path": "cifar100.npz", "label": "coarse", "public_fraction": 0.1}, 5_000, 5
    ),
}


@dataclass(frozen=True)
class Size:
    """What all cells of a size have in common."""

    augment: str
    batch: int
    learning_rate: float
    passes: dict[str, int]  # over the public set
    models: dict[str, tuple[tuple[str, int], ...]]  # backbones and widths, which clients take in turn


SIZES = {
    "small": Size(
        augment="none",
        batch=32,
        learning_rate=0.03,
        passes={"short": 10, "long": 40},
        models={"equal": (("cnn", 16),), "mixed": (("cnn", 16), ("resnet8", 16), ("cnn", 8))},
    ),
    "large": Size(  # a ResNet has hardly begun after ten passes
        augment="crop-flip",
        batch=128,
        learning_rate=0.05,
        passes={"short": 20, "long": 60},
        models={"equal": (("resnet8", 32),), "mixed": (("resnet18", 32), ("resnet8", 32), ("resnet8", 16))},
    ),
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "data": tuple(DATA),
    "partition": tuple(PARTITIONS),
    "clients": (4, 8, 16),
    "models": ("equal", "mixed"),
    "exchange": tuple(EXCHANGES),
    "graph": ("complete", "cycle"),
    "length": ("short", "long"),
}


@dataclass(frozen=True)
class Cell:
    """A value of each factor."""

    name: str
    data: str
    partition: str
    clients: int
    models: str
    exchange: str
    graph: str
    length: str

    @property
    def size(self) -> str:
        return DATA[self.data].size

    @property
    def unequal(self) -> bool:
        """Whether clients have different labels."""
        return self.partition != "s = 0"

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, factor) for factor in FACTORS)

    @property
    def steps(self) -> int:
        """The passes over the public set as steps, in tens."""
        size = SIZES[self.size]
        return 10 * round(size.passes[self.length] * DATA[self.data].public / size.batch / 10)

    def __str__(self) -> str:
        return (
            f"{self.data}, {self.partition}, {self.clients} clients, {self.models} models, {self.exchange}, "
            f"{self.graph}, {self.length}"
        )


assert [field.name for field in fields(Cell)] == ["name", *FACTORS]
DESIGN = (  # gauntlet_search.py
    Cell("digits-1", "digits", "s = 10", 16, "mixed", "top 3", "complete", "short"),
    Cell("digits-2", "digits", "s = 100", 4, "mixed", "weights", "cycle", "long"),
    Cell("digits-3", "digits", "s = inf", 8, "mixed", "top 3", "complete", "long"),
    Cell("digits-4", "digits", "Dirichlet 0.1", 8, "equal", "weights", "complete", "long"),
    Cell("mnist-1", "MNIST", "s = 0", 16, "equal", "top 3", "cycle", "short"),
    Cell("mnist-2", "MNIST", "s = 10", 8, "mixed", "top 3", "cycle", "short"),
    Cell("mnist-3", "MNIST", "s = inf", 4, "equal", "top 3", "cycle", "long"),
    Cell("mnist-4", "MNIST", "Dirichlet 0.1", 4, "mixed", "weights", "complete", "short"),
    Cell("fashion-1", "Fashion-MNIST", "s = 0", 4, "equal", "weights", "complete", "long"),
    Cell("fashion-2", "Fashion-MNIST", "s = 100", 8, "equal", "weights", "cycle", "short"),
    Cell("fashion-3", "Fashion-MNIST", "s = inf", 4, "mixed", "weights", "complete", "short"),
    Cell("fashion-4", "Fashion-MNIST", "Dirichlet 0.1", 16, "equal", "top 3", "cycle", "short"),
    Cell("cifar10-1", "CIFAR-10", "s = 0", 16, "mixed", "top 3", "complete", "short"),
    Cell("cifar10-2", "CIFAR-10", "s = 10", 16, "equal", "weights", "cycle", "short"),
    Cell("cifar10-3", "CIFAR-10", "s = 100", 8, "mixed", "top 3", "cycle", "short"),
    Cell("cifar10-4", "CIFAR-10", "s = inf", 4, "mixed", "weights", "cycle", "long"),
    Cell("cifar100-1", "CIFAR-100", "s = 10", 16, "mixed", "weights", "cycle", "long"),
    Cell("cifar100-2", "CIFAR-100", "s = 100", 4, "equal", "top 3", "complete", "short"),
    Cell("cifar100-3", "CIFAR-100", "s = inf", 16, "equal", "top 3", "complete", "long"),
    Cell("cifar100-4", "CIFAR-100", "Dirichlet 0.1", 8, "equal", "weights", "complete", "long"),
    Cell("coarse-1", "coarse CIFAR-100", "s = 0", 8, "equal", "top 3", "complete", "long"),
    Cell("coarse-2", "coarse CIFAR-100", "s = 10", 4, "equal", "weights", "cycle", "long"),
    Cell("coarse-3", "coarse CIFAR-100", "s = 100", 16, "mixed", "weights", "cycle", "short"),
    Cell("coarse-4", "coarse CIFAR-100", "Dirichlet 0.1", 8, "mixed", "top 3", "complete", "long"),
)
CELLS = {cell.name: cell for cell in DESIGN}


def covered_pairs(cells: Iterable[Cell]) -> tuple[int, int]:
    """Return how many pairs of values of different factors occur in a cell, and how many there are."""
    found = {pair for cell in cells for pair in combinations(zip(FACTORS, cell.values, strict=True), 2)}
    return len(found), sum(len(one) * len(other) for one, other in combinations(FACTORS.values(), 2))


def experiment_of(cell: Cell, folder: Path = Path()) -> Experiment:
    """Return MHD by default in a cell, with its data in a folder."""
    size, data = SIZES[cell.size], DATA[cell.data]
    keys = data.keys | {"validation_fraction": 0.1, "augment": size.augment} | PARTITIONS[cell.partition]
    if "path" in keys:
        keys["path"] = str(folder / keys["path"])
    if "skew" in keys:
        keys["primary_labels"] = {"per_client": data.primary}
    return Experiment(
        clients=cell.clients,
        data=keys,
        model=_models(cell),
        algorithm={"name": "mhd"} | EXCHANGES[cell.exchange],
        graph={"name": cell.graph},
        training={
            "steps": cell.steps,
            "batch_size": size.batch,
            "public_batch_size": size.batch,
            "learning_rate": size.learning_rate,
        },
        evaluate={"every": cell.steps, "relations": False},
    )


def _models(cell: Cell) -> Values:
    models = SIZES[cell.size].models[cell.models]
    backbones, widths = zip(*(models[client % len(models)] for client in range(cell.clients)), strict=True)
    if len(models) == 1:
        return {"backbone": backbones[0], "width": widths[0]}
    return {"backbone": list(backbones), "width": list(widths)}


WAYS = {  # as --ways names them, and as the table does
    "separate": "separate",
    "balanced": "separate, balanced",
    "printed": "MHD as printed",
    "mhd": "MHD",
    "no-ramp": "MHD, no ramp",
    "fedmd": "FedMD",
    "fedavg": "FedAvg",
    "supervised": "supervised",
}


def ways_of(base: Experiment) -> dict[str, Experiment]:
    """Return the ways in which a cell is trained; FedAvg is missing where models differ.

    As printed, MHD has the ramp without which it fails, and a pool of one entry per client. FedMD has twice the steps.
    """
    alone, steps = experiment_for(base, "separate"), base.training.steps
    pinned = as_printed()["algorithm"] | {"pool_every": max(1, steps // 300), "pool_size": base.clients}
    backbone, width = base.model.backbone, base.model.width
    first = {"backbone": backbone if isinstance(backbone, str) else backbone[0]}
    pooled = base.with_values(model=first | {"width": width if isinstance(width, int) else width[0]})
    return {
        "separate": alone.with_values(training={"balance": 0.0}),
        "balanced": alone,
        "printed": base.with_values(algorithm=pinned, training={"balance": 0.0}),
        "mhd": base,
        "no-ramp": base.with_values(algorithm={"pull_ramp": {"hold": 0.0, "rise": 0.0}}),
        "fedmd": experiment_for(base, "fedmd"),
        **({} if base.model.lists else {"fedavg": experiment_for(base, "averaging")}),
        "supervised": experiment_for(pooled, SUPERVISED),
    }


# Milliseconds of a client's step of MHD (on a core for small cells, on an H200 for large ones), and what a run of
# another way costs beside one of MHD. For estimates only: small cells were timed, large ones are a guess from others.
STEP_MS = {
    "digits": {"equal": 4.5, "mixed": 5.1},
    "small": {"equal": 14.5, "mixed": 19.0},
    "large": {"equal": 1.5, "mixed": 2.0},
}
COST = {"separate": 0.3, "balanced": 0.3, "printed": 1.0, "mhd": 1.0, "no-ramp": 1.0, "fedmd": 0.65, "fedavg": 0.3}
FIT_SECONDS = {"digits": 0.6, "MNIST": 6.0, "Fashion-MNIST": 17.0}  # of a run in which densities are fitted


def seconds_of(cell: Cell, way: str) -> float:
    """Estimate how long a run takes."""
    per_step = STEP_MS.get(cell.data, STEP_MS[cell.size])[cell.models] / 1_000
    if way == "supervised":
        return cell.steps * per_step * COST["separate"]
    fits = FIT_SECONDS.get(cell.data, 5.0) if way in ("mhd", "no-ramp") else 0.0
    return cell.clients * cell.steps * per_step * COST[way] + fits

"""What the drivers share: the saved workload, the model, local steps, and the line that each prints."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

SOURCE = Path(__file__).parents[2] / "src" / "manyheads"
if "manyheads" not in sys.modules:  # only its models are wanted: a rival need not carry the rest in memory
    package = ModuleType("manyheads")
    package.__path__ = [str(SOURCE)]
    sys.modules["manyheads"] = package

from manyheads.config.experiment import ModelConfig  # noqa: E402
from manyheads.models.client_model import ClientModel, make_model  # noqa: E402

torch.set_num_threads(1)


class Net(nn.Module):
    """The main head of a client's model in the usual form: images in, logits out."""

    def __init__(self, model: ClientModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)[0][:, 0]
        return logits


@dataclass(frozen=True)
class Workload:
    """The data and settings of a run. Images are normalised and split by client already, so no round pays for that."""

    folder: Path
    settings: Mapping[str, Any]
    clients: list[tuple[Tensor, Tensor]]  # images and labels
    test: tuple[Tensor, Tensor]

    @property
    def weights(self) -> dict[str, Tensor]:
        """Return the initial weights, which are the same for all."""
        found: dict[str, Tensor] = safetensors.torch.load_file(self.folder / "weights.safetensors")
        return found

    def net(self) -> Net:
        """Return the model without weights."""
        config = ModelConfig(backbone=self.settings["backbone"], width=self.settings["width"])
        height, width, channels = self.test[0].permute(0, 2, 3, 1).shape[1:]
        shape = (height, width, channels)
        return Net(make_model(config, image_shape=shape, heads=1, classes=self.settings["classes"]))

    def first_net(self) -> Net:
        net = self.net()
        net.model.load_state_dict(self.weights)
        return net

    def optimizer(self, net: Net) -> torch.optim.SGD:
        s = self.settings
        return torch.optim.SGD(
            net.parameters(), lr=s["learning_rate"], momentum=s["momentum"], weight_decay=s["weight_decay"]
        )

    @torch.no_grad()
    def accuracy(self, net: Net) -> float:
        images, labels = self.test
        net.eval()
        return float((net(images).argmax(-1) == labels).double().mean())


@lru_cache(maxsize=1)  # a process of a rival may be asked for many clients
def load(folder: str) -> Workload:
    root = Path(folder)
    with np.load(root / "workload.npz") as file:
        arrays = {name: file[name] for name in file.files}
    images, test = (
        torch.from_numpy(arrays[f"x_{part}"]).float().sub_(127.5).mul_(1.0 / 63.75).permute(0, 3, 1, 2)
        for part in ("train", "test")
    )
    labels = torch.from_numpy(arrays["y_train"])
    own = [(images[index], labels[index]) for index in torch.from_numpy(arrays["clients"])]
    settings = json.loads((root / "settings.json").read_text())
    return Workload(root, settings, own, (test, torch.from_numpy(arrays["y_test"])))


def local_steps(
    net: Net,
    optimizer: torch.optim.Optimizer,
    samples: tuple[Tensor, Tensor],
    settings: Mapping[str, Any],
    draws: torch.Generator,
) -> None:
    """Take the steps of one client in one round, as one would write them by hand."""
    images, labels = samples
    net.train()
    for index in _batches(len(labels), settings, draws):
        optimizer.zero_grad()
        cross_entropy(net(images[index]), labels[index]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _batches(samples: int, settings: Mapping[str, Any], draws: torch.Generator) -> Iterator[Tensor]:
    """Yield the batches of one epoch after the other; a client's samples are a whole number of batches."""
    size = settings["batch_size"]
    for _ in range(settings["local_steps"] * size // samples):
        yield from torch.split(torch.randperm(samples, generator=draws), size)


class Clock:
    """A clock that remembers when a run began, and when each of its rounds ended."""

    def __init__(self) -> None:
        self.began, self.ends = time.perf_counter(), list[float]()

    def round_ended(self) -> None:
        self.ends.append(time.perf_counter())

    def report(self, version: str, cores: int, accuracy: float, whole: float | None = None) -> None:
        """Print one line. The first round, in which everybody warms up, counts in the whole run only."""
        rounds = len(self.ends)
        line = {
            "version": version,
            "torch": torch.__version__,
            "cores": cores,
            "seconds": (self.ends[-1] - self.ends[0]) * rounds / (rounds - 1),
            "whole": whole or self.ends[-1] - self.began,
            "rounds": rounds,
            "accuracy": accuracy,
        }
        print(json.dumps(line), flush=True)

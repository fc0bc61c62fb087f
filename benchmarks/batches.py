"""The cost of batches: gathering, cropping and flipping 128 images from memory against a ResNet-18 step on them.

    python benchmarks/batches.py [--device cuda] [--write docs/measurements.md]

The step is forward, backward and update of a ResNet-18 (3 x 3 stem, width 64) on 128 images of 32 x 32, whose batch is
ready. Both alternate in one process. Targets: 5 % of the step on a GPU, 10 % on a CPU.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from common import add_write, markdown_table, processor_name, publish
from manyheads.config.experiment import ModelConfig
from manyheads.data.batches import Pixels, Samples
from manyheads.models.client_model import initialise, make_model
from manyheads.seeds import EVERYONE

BATCH, IMAGES, CLASSES = 128, 50_000, 100
TARGETS = {"cuda": 0.05, "cpu": 0.10}


def batches(augment: str, device: torch.device, dtype: torch.dtype) -> Callable[[int], torch.Tensor]:
    """Return a function from a step to its pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)
    samples = Samples(
        Pixels(pixels, device),
        None,
        np.arange(IMAGES),
        seed=0,
        purpose="private",
        client=0,
        augment=augment,
        views_of=EVERYONE,
    )
    window = samples.window(0, 300, BATCH)
    return lambda step: samples.rows(window, step % 300, dtype).images


def training_step(device: torch.device) -> Callable[[torch.Tensor], None]:
    """Return a function that goes forward and backward and updates the weights."""
    config = ModelConfig(backbone="resnet18", width=64, stem="small")
    model = make_model(config, image_shape=(32, 32, 3), heads=1, classes=CLASSES)
    initialise(model, np.random.default_rng(0))
    model = model.to(device)
    labels = torch.arange(BATCH, device=device) % CLASSES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)

    def step(images: torch.Tensor) -> None:
        optimizer.zero_grad()
        cross_entropy(model(images)[0][:, 0], labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def seconds(work: Callable[[int], object], repeats: int, device: torch.device) -> float:
    """Return the seconds of one call, with the device's queue empty before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(repeats):
        work(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / repeats


def measure(augment: str, device: torch.device, autocast: bool, rounds: int, repeats: int) -> list[str]:
    """Return a row of the table."""
    batch, step = batches(augment, device, torch.float32), training_step(device)
    ready = batch(0)
    context: AbstractContextManager[object] = torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext()
    with context:
        for _ in range(3):
            step(ready)
        pairs = [
            (seconds(batch, 20 * repeats, device), seconds(lambda _: step(ready), repeats, device))
            for _ in range(rounds)
        ]
    ours, whole = (statistics.median(column) for column in zip(*pairs, strict=True))
    share, target = statistics.median(a / b for a, b in pairs), TARGETS[device.type]
    name = "bfloat16" if autocast else "float32"
    verdict = "met" if share <= target else "missed"
    return [augment, name, f"{1e3 * ours:.3f}", f"{1e3 * whole:.2f}", f"{share:.2%}", f"{target:.0%}", verdict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=sorted(TARGETS), default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    add_write(parser)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    table = [
        measure(augment, device, autocast, options.rounds, 20 if device.type == "cuda" else 1)
        for augment in ("crop-flip", "resized-crop-flip")
        for autocast in ((False, True) if device.type == "cuda" else (False,))
    ]
    header = ["views", "step in", "batch, ms", "step, ms", "share", "target", ""]
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{processor_name()}, one thread"
    command = f"`python benchmarks/batches.py --device {options.device}`"
    about = f"{command}, medians of {options.rounds} alternating rounds; {where}, torch {torch.__version__}."
    publish(f"batches {options.device}", f"{about}\n\n{markdown_table(header, table)}", options)


if __name__ == "__main__":
    main()

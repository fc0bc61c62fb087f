"""The overhead of the framework: a client's step in the plain engine against a hand-written PyTorch loop.

    python benchmarks/step_overhead.py [--model demo|resnet18] [--rounds N]

Both do the same work: gather a private and a public batch of uint8 images, two training passes and one pass of a
teacher in evaluation mode, the losses of Eq. 1 to 5, backward, SGD with momentum and weight decay. They alternate in
one process, on one thread; the table gives the median time of a step and the median of the ratios of neighbouring
runs. Target: at most 1.10.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from common import printed_demo
from manyheads import Experiment
from manyheads.engine.base import Window
from manyheads.engine.plain import PlainTrainer, exchange
from manyheads.setup.build import Ensemble, assemble

TARGET = 1.10
SHAPES = {"demo": {"steps": 50, "rounds": 20}, "resnet18": {"steps": 2, "rounds": 7}}


def experiment(name: str, folder: Path) -> Experiment:
    """Return the demo's experiment, or the same with a ResNet-18 on noise of 32 x 32 x 3."""
    one = {"targets_per_step": 1, "ramp": {"hold": 0.0, "rise": 0.0}}
    made = printed_demo().with_values(algorithm=one)
    if name == "demo":
        return made
    rng = np.random.default_rng(0)
    labels, images = np.arange(600) % 10, rng.integers(0, 256, size=(600, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "noise.npz", x_train=images, y_train=labels, x_test=images[:10], y_test=labels[:10])
    return made.with_values(
        data={"source": "npz", "path": str(folder / "noise.npz")}, model={"backbone": "resnet18", "width": 64}
    )


class ByHand:
    """The loop that one would write by hand for this one experiment, with nothing else in it."""

    def __init__(self, ensemble: Ensemble) -> None:
        client = ensemble.clients[0]
        self.training, self.knobs = (
            ensemble.resolved.experiment.training,
            ensemble.resolved.experiment.algorithm.options(),
        )
        train = ensemble.resolved.dataset.train
        self.images, self.labels = torch.from_numpy(train.images), torch.from_numpy(train.known_labels)
        self.private = torch.from_numpy(client.private.indices)
        self.public = torch.from_numpy(ensemble.resolved.split.public)
        self.model, self.teacher = client.make_model(), client.make_model().eval()
        self.model.load_state_dict(client.model.state_dict())
        self.teacher.load_state_dict(ensemble.clients[1].model.state_dict())
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=1e-3,
            momentum=self.training.momentum,
            weight_decay=self.training.weight_decay,
        )

    def batch(self, pool: Tensor, size: int) -> tuple[Tensor, Tensor]:
        index = pool[torch.randint(len(pool), (size,))]
        images = self.images[index].permute(0, 3, 1, 2).float().sub_(127.5).mul_(1.0 / 63.75)
        return images, self.labels[index]

    def train(self, steps: int) -> None:
        for _ in range(steps):
            images, labels = self.batch(self.private, self.training.batch_size)
            public, _ = self.batch(self.public, self.training.public_batch_size)
            self.optimizer.zero_grad()
            loss = cross_entropy(self.model(images)[0][:, 0], labels)
            logits, embedding = self.model(public)
            with torch.no_grad():
                foreign_logits, foreign_embedding = self.teacher(public)
                candidates = torch.stack([logits[:, :-1].softmax(-1), foreign_logits[:, :-1].softmax(-1)])
                choice = candidates.amax(-1).argmax(0)
                index = choice[None, :, :, None].expand(-1, -1, -1, candidates.shape[-1])
                target = candidates.gather(0, index)[0]
            distance = normalize(embedding, dim=-1) - normalize(foreign_embedding, dim=-1)
            loss = loss + self.knobs["nu_emb"] * distance.square().sum(-1).mean()
            loss = loss - self.knobs["nu_aux"] * (target * logits[:, 1:].log_softmax(-1)).sum((1, 2)).mean()
            loss.backward()
            self.optimizer.step()


def measure(name: str, rounds: int) -> tuple[float, float, float]:
    """Return the median seconds per step by hand and in the plain engine, and the median ratio of neighbouring runs."""
    with tempfile.TemporaryDirectory() as folder:
        ensemble, steps = assemble(experiment(name, Path(folder))), SHAPES[name]["steps"]
    exchange(ensemble, step=0)
    by_hand, engine, client = ByHand(ensemble), PlainTrainer(), ensemble.clients[:1]
    done = 0

    def framework() -> None:
        nonlocal done
        engine.train(client, ensemble.resolved.algorithm, Window(done, done + steps), lambda _: None)
        done += steps

    def seconds(work: Callable[[], None]) -> float:
        begun = time.perf_counter()
        work()
        return (time.perf_counter() - begun) / steps

    by_hand.train(steps)  # warm up
    framework()
    pairs = [(seconds(lambda: by_hand.train(steps)), seconds(framework)) for _ in range(rounds)]
    hand, ours = zip(*pairs, strict=True)
    return statistics.median(hand), statistics.median(ours), statistics.median(b / a for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=sorted(SHAPES))
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {torch.backends.cpu.get_cpu_capability()}")
    print(f"{'model':10} {'by hand, ms':>12} {'plain engine, ms':>17} {'paired ratio':>13}   target {TARGET:.2f}")
    for name in [arguments.model] if arguments.model else SHAPES:
        hand, ours, ratio = measure(name, arguments.rounds or SHAPES[name]["rounds"])
        verdict = "met" if ratio <= TARGET else "MISSED"
        print(f"{name:10} {1e3 * hand:12.2f} {1e3 * ours:17.2f} {ratio:13.3f}   {verdict}", flush=True)


if __name__ == "__main__":
    main()

"""The fingerprint of how this machine rounds: a hash of the results of a few reference operations.

A processor's name does not tell, nor do its vector instructions: oneDNN and MKL choose among kernels by maker, size of
caches and shape, and each sums in its own order. So it is tried out. If fingerprints and versions of PyTorch are equal,
the same experiment gives the same bits; if not, last bits may differ.

The operations are PyTorch's, not this package's models: a change of our code must not look like another machine. Their
shapes, and how they lie in memory, are those of training. `python -m manyheads.rounding` prints the fingerprint.
"""

import hashlib
import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.engine.threads import one_thread

Results = Iterator[Tensor]
# batch, height and width, channels, width, heads: those of the tests, of the digits tables, and colour images
STEPS = ((16, 8, 1, 4, 1), (16, 8, 1, 4, 3), (32, 8, 1, 16, 1), (32, 8, 1, 16, 5), (8, 16, 3, 8, 3))
CLASSES = 10


@cache
def rounding() -> str:
    """Return the fingerprint of how this machine rounds, with one thread: 16 hexadecimal digits."""
    found = hashlib.sha256()
    for result in reference_results():
        found.update(result.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def reference_results() -> Results:
    """Yield the results of all reference operations."""
    with one_thread(), torch.enable_grad():
        for shape in STEPS:
            yield from _step(*shape)
        with torch.no_grad():
            yield from _step(300, *STEPS[1][1:])  # a table of predictions
        yield from _kernels()
        yield from _optimizer()
        yield from _density()
        for size in (16, 300, 5_000):
            yield from _functions(size)
        yield from _draws()


def numbers(*shape: int) -> Tensor:
    """Return numbers between -0.5 and 0.5 that are the same everywhere: whole ones of 24 bits, scaled exactly."""
    index = torch.arange(math.prod(shape), dtype=torch.int64) + sum(shape)
    mixed = (index * 0x9E3779B1 & 0xFFFFFFFF) * 0x85EBCA6B >> 8 & 0xFFFFFF
    return (mixed.float() / 2**24 - 0.5).reshape(shape)


def channels_last(*shape: int) -> Tensor:
    """Return numbers in the memory order of our images and kernels, even with one channel."""
    first, channels, height, width = shape
    return numbers(first, height, width, channels).permute(0, 3, 1, 2)


def _step(batch: int, size: int, channels: int, width: int, heads: int) -> Results:
    """Yield every result of a step of a small network that others teach, from images to gradients."""
    x, learnt = channels_last(batch, channels, size, size), list[Tensor]()
    for stage, (before, after) in enumerate(pairwise((channels, width, 2 * width, 4 * width))):
        own = (channels_last(after, before, 3, 3), 1.0 + numbers(after), numbers(after))
        learnt += [tensor.requires_grad_() for tensor in own]
        x = F.conv2d(x, own[0], stride=2 if stage else 1, padding=1)
        yield x
        statistics = (torch.zeros(after), torch.ones(after))
        yield F.batch_norm(x.detach(), *statistics, *own[1:])
        x = F.batch_norm(x, *statistics, *own[1:], training=True).relu()
        yield from (x, *statistics)
    embedding = F.adaptive_avg_pool2d(x, 1).flatten(1)
    learnt += [numbers(heads * CLASSES, 4 * width).requires_grad_(), numbers(heads * CLASSES).requires_grad_()]
    logits = F.linear(embedding, *learnt[-2:]).reshape(batch, heads, CLASSES)
    yield from (embedding, logits)
    terms = [F.cross_entropy(logits[:, 0], torch.arange(batch) % CLASSES)]
    if heads > 1:
        probabilities, taught = logits.detach().softmax(-1), F.log_softmax(logits[:, 1:], dim=-1)
        unit, foreign = (F.normalize(one, dim=-1) for one in (embedding, numbers(batch, 4 * width)))
        terms += [(unit - foreign).square().sum(-1).mean(), -(probabilities[:, :-1] * taught).sum((1, 2)).mean()]
        yield from (probabilities, taught, unit)
    yield from terms
    if torch.is_grad_enabled():
        yield from torch.autograd.grad(torch.stack(terms).sum(), learnt)


def _kernels() -> Results:
    """Yield convolutions of ResNets: a shortcut (from 16 channels: models/resnet.py), many channels, a large stem."""
    for after, before, kernel, stride, size in ((32, 16, 1, 2, 8), (64, 64, 3, 1, 4), (16, 3, 7, 2, 16)):
        x, weight = channels_last(4, before, size, size), channels_last(after, before, kernel, kernel)
        y = F.conv2d(x.requires_grad_(), weight.requires_grad_(), stride=stride, padding=kernel // 2)
        yield from (y, *torch.autograd.grad(y.square().sum(), (x, weight)))


def _optimizer() -> Results:
    """Yield SGD with momentum and weight decay, and means of several models."""
    weights, momentum, gradient = numbers(1_003), numbers(1_003).flip(0), numbers(1_003).square()
    gradient.add_(weights, alpha=5e-4)
    momentum.mul_(0.9).add_(gradient)
    yield from (momentum, weights.sub_(momentum, alpha=0.03))
    yield torch.stack([weights, momentum, gradient]).mean(0)
    yield (torch.stack([weights, momentum]) * torch.tensor([0.3, 0.7])[:, None]).sum(0)


def _density() -> Results:
    """Yield a density model of embeddings and its distances."""
    unit, eye = F.normalize(numbers(300, 16), dim=-1), torch.eye(16)
    means = F.one_hot(torch.arange(300) % CLASSES, CLASSES).float().T @ unit / 30.0
    lower = torch.linalg.cholesky(unit.T @ unit / 300 + 0.01 * eye)
    whitening = torch.linalg.solve_triangular(lower, eye, upper=False).T.contiguous()
    yield from (means, lower, whitening)
    yield from (torch.cdist(own @ whitening, means @ whitening) for own in (unit, unit[:16], unit[:32]))


def _functions(size: int) -> Results:
    """Yield elementary functions, which treat the last numbers of a row singly, and sums of many numbers."""
    x = 6.0 * numbers(size + 3)
    yield from (f(x) for f in (torch.exp, torch.tanh, torch.sigmoid, torch.erf))
    yield from (f(x.abs() + 0.1) for f in (torch.log, torch.sqrt, torch.rsqrt, torch.reciprocal))
    yield torch.xlogy(x.abs(), x.abs())
    table = numbers(8, size)
    yield from (table.sum(), table.sum(0), table.mean(1), table.std(1), table.double().sum(1), table.norm(dim=1))


def _draws() -> Results:
    """Yield draws of first weights."""
    yield torch.from_numpy(np.random.Generator(np.random.Philox(key=1)).standard_normal(1_000, dtype=np.float32))


if __name__ == "__main__":
    print(rounding())

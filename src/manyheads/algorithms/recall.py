"""What a client has heard about each public sample, so that a step with one teacher learns from many.

A sample comes up again and again, each time with other teachers. For each sample and auxiliary head a client keeps the
mixture that it heard last, and adds what it hears now: h <- remember * h + sum_j w_j p_j. The target is h / sum_c h_c,
the mean of everything heard, in which confidence counts and what is old fades. Only the largest entries are kept.
"""

from collections.abc import MutableMapping

import torch
from torch import Tensor

from manyheads.data.batches import Samples

MOST_CLASSES = 16  # kept for each sample and head
CLASSES, VALUES = "heard classes", "heard values"  # in the client's memory: samples x auxiliary heads x classes kept


def bytes_needed(samples: int, heads: int, classes: int) -> int:
    """Return the bytes that a client needs for what it hears about so many samples; values have 4, classes 2.

    >>> bytes_needed(samples=50_000, heads=4, classes=100)
    19200000
    """
    return 6 * samples * heads * min(MOST_CLASSES, classes)


def begin(memory: MutableMapping[str, Tensor], public: Samples, heads: int, classes: int, like: Tensor) -> None:
    """Make room for what will be heard, unless there is."""
    public.places(public.first)  # their order is known before a step may be captured
    if VALUES not in memory:
        shape = (len(public), heads, min(MOST_CLASSES, classes))
        memory[CLASSES] = torch.zeros(shape, dtype=torch.int16, device=like.device)
        memory[VALUES] = torch.zeros(shape, dtype=like.dtype, device=like.device)


def add_heard(
    memory: MutableMapping[str, Tensor], public: Samples, samples: Tensor, now_BKC: Tensor, remember: float
) -> Tensor:
    """Return what was heard about samples, now included, and keep it."""
    places = public.places(samples)
    before_BKT, classes_BKT = memory[VALUES][places], memory[CLASSES][places].long()
    heard_BKC = now_BKC.scatter_add(-1, classes_BKT, remember * before_BKT)
    largest_BKT = heard_BKC[last_of_equal(places)].topk(before_BKT.shape[-1], dim=-1)
    memory[VALUES].index_copy_(0, places, largest_BKT.values)
    memory[CLASSES].index_copy_(0, places, largest_BKT.indices.to(torch.int16))
    return heard_BKC


def last_of_equal(places_B: Tensor) -> Tensor:
    """Return for each place the position of its last occurrence.

    Where an epoch ends, a batch may hold a sample twice: both then keep the same, whichever is written last.

    >>> last_of_equal(torch.tensor([5, 3, 5]))
    tensor([2, 1, 2])
    """
    return ((places_B[:, None] == places_B) * torch.arange(len(places_B), device=places_B.device)).amax(1)


def fits(memory: MutableMapping[str, Tensor], samples: int, heads: int, classes: int, like: Tensor) -> bool:
    """Tell whether a save holds what is needed to continue."""
    shape = (samples, heads, min(MOST_CLASSES, classes))
    if VALUES not in memory or CLASSES not in memory:
        return False
    values, kept = memory[VALUES], memory[CLASSES]
    if values.shape != shape or kept.shape != shape or kept.dtype != torch.int16 or values.dtype != like.dtype:
        return False
    known = bool((kept >= 0).all()) and bool((kept < classes).all())
    return known and bool(torch.isfinite(values).all()) and bool((values >= 0.0).all())

"""Whom a client asks about a public sample: the teacher that was surest of it before, instead of anybody.

With one teacher a step, drawn for the whole batch, most samples are taught by somebody who has hardly seen their label.
A sample comes up again and again. So a client can keep, for each sample and each other client, how sure that one's main
head was when it was last asked, and ask the surest: no more answers than before, but from those who know, and about the
very view that the student sees. Some samples ask anybody, because teachers learn.

What was heard counts from the next exchange on. A choice is then the same however steps are cut into windows, and
clients that exchange only the rows that are due know at the exchange which rows these are.
"""

from collections.abc import MutableMapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.algorithms.recall import last_of_equal
from manyheads.data.arrays import Indices
from manyheads.data.batches import Samples
from manyheads.seeds import generator

LATELY, BEFORE = "surest lately", "surest before"  # in memory: samples x clients; the second as of the last exchange
NEVER_ASKED = -1.0
FIRST = 1e9  # more than a confidence: whoever was never asked comes first
ANYBODY = 0.1  # the share of samples that ask anybody


def bytes_needed(samples: int, clients: int) -> int:
    """Return the bytes that a client keeps about so many samples and clients.

    >>> bytes_needed(samples=5_000, clients=8)
    320000
    """
    return 8 * samples * clients


def begin(memory: MutableMapping[str, Tensor], public: Samples, clients: int, device: torch.device) -> None:
    """Make room for how sure each client is of each sample, unless there is."""
    public.places(public.first)  # their order is known before a step may be captured
    if LATELY not in memory:
        memory[LATELY] = torch.full((len(public), clients), NEVER_ASKED, device=device)
        memory[BEFORE] = memory[LATELY].clone()


def take_in(memory: MutableMapping[str, Tensor]) -> None:
    """Let what was heard since the last exchange count from now on."""
    if LATELY in memory:
        memory[BEFORE].copy_(memory[LATELY])


def choose(
    memory: MutableMapping[str, Tensor],
    public: Samples,
    samples_SB: Indices,
    pool: Sequence[tuple[int, int]],
    targets: int,
    *,
    seed: int,
    client: int,
    steps: range,
) -> NDArray[np.int64]:
    """Return which entries (owner, step) of a pool teach each sample: steps x targets x samples.

    First those owners that were never asked about it, then the surest, each with its newest entry; ties in random
    order. Older entries teach only if there are more targets than owners.
    """
    batch, number = samples_SB.shape[1], min(targets, len(pool))
    if not pool:
        return np.zeros((len(steps), 0, batch), dtype=np.int64)
    before = memory[BEFORE]
    places = public.places(torch.from_numpy(samples_SB.ravel()).to(before.device))
    owners, entry_OR = _entries_by_owner(pool)
    sure_SBO = before[places][:, torch.tensor(owners, device=before.device)].cpu().numpy()
    sure_SBO = sure_SBO.reshape(*samples_SB.shape, len(owners))
    chosen = np.zeros((len(steps), number, batch), dtype=np.int64)
    for at, step in enumerate(steps):
        rng = generator(seed, "whom to ask", client, step)
        anybody_B1 = rng.random((batch, 1)) < ANYBODY
        random_BO = rng.random((batch, before.shape[1]))[:, owners]  # of a client, whoever else is in the pool
        score_BO = np.where(sure_SBO[at] < 0.0, FIRST, sure_SBO[at]) * ~anybody_B1
        order_BO = np.lexsort((random_BO, -score_BO))
        entry_BE = entry_OR[order_BO].transpose(0, 2, 1).reshape(batch, -1)  # the newest of all owners come first
        chosen[at] = entry_BE[entry_BE >= 0].reshape(batch, -1)[:, :number].T
    return chosen


def _entries_by_owner(pool: Sequence[tuple[int, int]]) -> tuple[list[int], NDArray[np.int64]]:
    """Return the owners in a pool and the entries of each, the newest first, -1 where there are fewer.

    >>> _entries_by_owner([(3, 5), (1, 5), (3, 10)])
    ([1, 3], array([[ 1, -1],
           [ 2,  0]]))
    """
    by_owner: dict[int, list[int]] = {owner: [] for owner, _ in sorted(pool)}
    for entry in sorted(range(len(pool)), key=lambda entry: -pool[entry][1]):
        by_owner[pool[entry][0]].append(entry)
    most = max(map(len, by_owner.values()))
    return list(by_owner), np.array([own + [-1] * (most - len(own)) for own in by_owner.values()])


def note(
    memory: MutableMapping[str, Tensor],
    public: Samples,
    samples: Tensor,
    owners_B: Tensor,
    sure_B: Tensor,
    known_B: Tensor | None = None,
) -> None:
    """Keep how sure the owners that were asked about samples were; what they were before, where they did not answer."""
    lately = memory[LATELY]
    place_B = public.places(samples) * lately.shape[1] + owners_B
    sure_B = sure_B.to(lately.dtype).nan_to_num(0.0).clamp(0.0, 0.5 * FIRST)
    if known_B is not None:
        sure_B = sure_B.where(known_B, lately.view(-1)[place_B].clamp_min(0.0))  # whoever is silent does not come first
    lately.view(-1).index_copy_(0, place_B, sure_B[last_of_equal(place_B)])


def fits(memory: MutableMapping[str, Tensor], samples: int, clients: int) -> bool:
    """Tell whether a save holds what is needed to continue."""
    if LATELY not in memory or BEFORE not in memory:
        return False
    return all(
        memory[name].shape == (samples, clients)
        and memory[name].dtype == torch.float32
        and bool(torch.isfinite(memory[name]).all())
        for name in (LATELY, BEFORE)
    )

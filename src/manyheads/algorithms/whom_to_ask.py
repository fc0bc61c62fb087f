"""Whom a client asks about a public sample: the teacher that was surest of it before, instead of anybody.

With one teacher a step, drawn for the whole batch, most samples are taught by somebody who has hardly seen their label.
A sample comes up again and again, so a client can keep, for each sample and each other client, how sure that one's main
head was when it was last asked, and ask the surest: as many answers as before, each about the very view that the
student sees, from those who know. Some samples ask anybody, because teachers learn.

What was heard counts from the next exchange on. So choices depend on no window, and whose tables hold only the rows
that are due know these rows when they are asked for.
"""

from collections.abc import MutableMapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.arrays import Indices
from manyheads.data.batches import Samples
from manyheads.seeds import generator

LATELY, BEFORE = "sure lately", "sure before"  # in memory: samples x clients; the second as of the last exchange
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

    First those that were never asked about it, in random order, then the surest; of one owner the newest entry first.
    """
    chosen = np.zeros((len(steps), min(targets, len(pool)), samples_SB.shape[1]), dtype=np.int64)
    if not pool:
        return chosen
    newest_E = np.array(sorted(range(len(pool)), key=lambda entry: -pool[entry][1]))
    before = memory[BEFORE]
    places = public.places(torch.from_numpy(samples_SB.ravel()).to(before.device))
    owners_E = torch.tensor([pool[entry][0] for entry in newest_E.tolist()], device=before.device)
    sure_SBE = before[places][:, owners_E].cpu().numpy().reshape(*samples_SB.shape, len(pool))
    for at, step in enumerate(steps):
        rng = generator(seed, "whom to ask", client, step)
        anybody_B1 = rng.random((samples_SB.shape[1], 1)) < ANYBODY
        random_BE = rng.random(sure_SBE.shape[1:])
        score_BE = np.where(anybody_B1, random_BE, np.where(sure_SBE[at] < 0.0, FIRST + random_BE, sure_SBE[at]))
        order_BE = np.argsort(-score_BE, axis=1, kind="stable")
        chosen[at] = newest_E[order_BE[:, : chosen.shape[1]]].T
    return chosen


def note(
    memory: MutableMapping[str, Tensor], public: Samples, samples: Tensor, owners_B: Tensor, sure_B: Tensor
) -> None:
    """Keep how sure the owners that were asked about samples were."""
    lately = memory[LATELY]
    place_B = public.places(samples) * lately.shape[1] + owners_B
    # Where an epoch ends, a batch may hold a sample twice: both then keep the same, whichever is written last.
    last_B = ((place_B[:, None] == place_B) * torch.arange(len(place_B), device=place_B.device)).amax(1)
    lately.view(-1).index_copy_(0, place_B, sure_B[last_B].to(lately.dtype))


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

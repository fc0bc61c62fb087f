"""Answers about a batch of which each sample asks its own snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.exchange.snapshot import Snapshot
from manyheads.outputs import Outputs


@dataclass(frozen=True)
class AnswersBySample:
    """The answers of several snapshots, put together: without embeddings, and embeddings by width."""

    outputs: Outputs
    embedding_BE: dict[int, Tensor]
    has_width_B: dict[int, Tensor]  # the samples whose teacher sent an embedding of this width


@torch.no_grad()
def ask_by_sample(entries: Sequence[Snapshot], entry_B: NDArray[np.int64], rows: Rows) -> AnswersBySample:
    """Ask for each row the entry that is named for it; each snapshot is asked once, about all its rows.

    In an external model the samples of a batch may interact, so it is asked about the whole batch, as it always is.
    """
    p_BHC = confidence_BH = None
    size, device = len(entry_B), rows.images.device
    known_B = torch.ones(size, dtype=torch.bool, device=device)
    embeddings: dict[int, Tensor] = {}
    has_width_B: dict[int, Tensor] = {}
    for entry in np.unique(entry_B).tolist():
        at = torch.from_numpy(np.flatnonzero(entry_B == entry)).to(device)
        answer = _answer(entries[entry], rows, at)
        p_BHC = _put(p_BHC, answer.probabilities_BHC, at, size)
        if answer.confidence_BH is not None:  # 0 for those who measured none, if others did
            confidence_BH = _put(confidence_BH, answer.confidence_BH, at, size)
        if answer.known_B is not None:
            known_B[at] = answer.known_B
        if answer.embedding_BE is not None:
            width = answer.embedding_BE.shape[-1]
            embeddings[width] = _put(embeddings.get(width), answer.embedding_BE, at, size)
            asked_B = has_width_B.setdefault(width, torch.zeros_like(known_B))
            asked_B[at] = True if answer.known_B is None else answer.known_B
    assert p_BHC is not None, "a batch has samples"
    everything = bool(known_B.all())
    return AnswersBySample(
        Outputs(p_BHC, None, confidence_BH, None if everything else known_B), embeddings, has_width_B
    )


def _answer(snapshot: Snapshot, rows: Rows, at: Tensor) -> Outputs:
    """Return a snapshot's answer about some rows of a batch."""
    if snapshot.source is None or not snapshot.source.replica.model.external:
        return snapshot.outputs(Rows(rows.samples[at], rows.view_numbers[at], rows.images[at]))
    every = snapshot.outputs(rows)
    p_BHC, others = every.probabilities_BHC[at], (every.embedding_BE, every.confidence_BH, every.known_B)
    return Outputs(p_BHC, *(None if other is None else other[at] for other in others))


def _put(into: Tensor | None, answer: Tensor, at: Tensor, size: int) -> Tensor:
    """Write answers about some samples into a tensor for all of them, which is made for the first."""
    if into is None:
        into = answer.new_zeros(size, *answer.shape[1:])
    return into.index_copy_(0, at, answer.to(into.dtype))

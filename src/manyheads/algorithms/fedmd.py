"""FedMD (Li and Wang 2019): rounds of communicate, aggregate, digest and revisit."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.algorithms.base import Algorithm, Neighbours, Sends, TableContents
from manyheads.client.client import Batch, Client
from manyheads.client.plan import WindowPlan
from manyheads.config.knobs import FedMDKnobs, known
from manyheads.config.types import CHECKED
from manyheads.data.arrays import Indices
from manyheads.data.batches import Rows, stream
from manyheads.errors import LEARN_SLOWER, ConfigurationError, TrainingError
from manyheads.exchange.request import PublicRows
from manyheads.exchange.row_format import RowFormat
from manyheads.exchange.snapshot import Snapshot
from manyheads.seeds import generator


@dataclass(frozen=True, config=CHECKED)
class FedMD(FedMDKnobs, Algorithm):
    """FedMD's rounds: class scores of all clients on a drawn part of the public set, their mean, `digest_steps` towards
    that mean (L1), then `revisit_steps` on private data.

    On a complete graph the mean is over all clients, as a server would take it; on any other graph it is over a client
    and its neighbours. Before the first round, a client may train on the public set, if that is labelled, and on its
    private data.

    >>> list(FedMD(first_private_steps=10, digest_steps=5, revisit_steps=5).exchange_steps(40))
    [10, 20, 30]
    """

    reads_public: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True
    takes_means: ClassVar[bool] = True

    @property
    def _first(self) -> int:
        return self.first_public_steps + known(self.first_private_steps)

    @property
    def _round(self) -> int:
        return self.digest_length + known(self.revisit_steps)

    @property
    def digest_length(self) -> int:
        return known(self.digest_steps)

    @property
    def sends(self) -> Sends:
        return "predictions"

    def knobs_for_trial(self, steps: int) -> Mapping[str, object]:
        return {"first_private_steps": 0, "digest_steps": steps - 1, "revisit_steps": 1}

    @property
    def reads_public_labels(self) -> bool:
        return self.first_public_steps > 0

    def table_contents(self, heads: int, classes: int) -> TableContents:
        form = RowFormat(classes=classes, heads=1, top_k=classes, precision="float32", confidence=False)
        return TableContents(form, embedding=False)

    def check(self, steps: int, classes: int) -> None:
        rounds, left = divmod(steps - self._first, self._round)
        if rounds < 1 or left:
            fits = self._first + max(1, rounds) * self._round
            raise ConfigurationError(
                f"training.steps = {steps}: not {self._first} first steps and whole rounds of digest_steps + "
                f"revisit_steps = {self._round}; use {fits}" + (f" or {fits + self._round}" if rounds >= 1 else "")
            )

    def exchange_steps(self, steps: int) -> Sequence[int]:
        return range(self._first, steps, self._round)

    def extra_evaluations(self, steps: int) -> Mapping[int, str]:
        starts = self.exchange_steps(steps)
        digested = {start + self.digest_length: "digest" for start in starts}
        return digested | {start + self._round: "revisit" for start in starts}

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Communicate: ask for scores on this round's part of the public set, the own ones as others see them."""
        number = self._round_of(step)
        rows = PublicRows(((self._aligned(client, number), self._view(client, number)),))
        return [neighbours.ask_self(rows), *(neighbours.ask(j, rows) for j in neighbours)]

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Aggregate: take the mean of all scores, summed in the order of clients."""
        assert client.public is not None
        if not received:
            raise TrainingError(f"step {step}, {client.name}: no scores of any client are numbers; {LEARN_SLOWER}")
        number = self._round_of(step)
        rows = client.public.rows_in_view(
            self._aligned(client, number), self._view(client, number), client.state.values.dtype
        )
        ordered = sorted(received, key=lambda snapshot: snapshot.client)
        client.memory["consensus"] = sum_of_scores(ordered, rows) / len(ordered)

    def memory_fits(self, client: Client, step: int) -> bool:
        consensus = client.memory.get("consensus")
        if consensus is None:
            return step < self._first
        form = (len(self._aligned(client, 0)), client.model.shape_HC[1])
        return consensus.shape == form and consensus.is_floating_point() and bool(torch.isfinite(consensus).all())

    def plan(self, client: Client, start: int, stop: int) -> WindowPlan:
        """Plan the phase of each step, and the public rows of the steps that read any."""
        assert client.public is not None
        size, steps, public_size = client.training.public_batch_size, range(start, stop), len(client.public)
        public, aligned = np.zeros((2, len(steps), size), dtype=np.int64)
        phase, view = np.zeros((2, len(steps)), dtype=np.int64)
        subset_of = cache(partial(self._aligned, client))
        for at, step in enumerate(steps):
            number, into = divmod(step - self._first, self._round)
            if step < self.first_public_steps:
                phase[at] = LABELLED
                public[at] = self._batch(client, "labelled public", public_size, 0, step)
                view[at] = self._view(client, step * size // public_size)
            elif number >= 0 and into < self.digest_length:
                phase[at], view[at] = DIGEST, self._view(client, number)
                subset = subset_of(number)
                aligned[at] = self._batch(client, "digest", len(subset), number, into)
                public[at] = subset[aligned[at]]
        private = np.array([self._private_step(step) for step in steps])
        arrays = {"aligned": aligned}
        return WindowPlan(public=public, view=view, private_step=private, phase=phase, arrays=arrays)

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Return the digest (L1 to the consensus), the private task (revisit), or cross-entropy (before rounds)."""
        nothing = client.state.values.new_zeros(())
        if batch.phase == DIGEST:
            logits_BHC, _ = client.model(batch.public.images)
            consensus_BC = client.memory["consensus"][batch.array("aligned")]
            distance = (scores(logits_BHC[:, 0]) - consensus_BC).abs().sum(-1).mean()
            return {"cross_entropy": nothing, "digest": self.nu_digest * distance}
        labelled = batch.phase == LABELLED
        images, labels = (
            (batch.public.images, batch.public_labels()) if labelled else (batch.private.images, batch.labels)
        )
        logits_BHC, _ = client.model(images)
        loss = cross_entropy if labelled else client.private_loss
        return {"cross_entropy": loss(logits_BHC[:, 0], labels), "digest": nothing}

    def _round_of(self, step: int) -> int:
        return (step - self._first) // self._round

    def _private_step(self, step: int) -> int:
        """Return how many steps on private data came before: the others take none of its batches."""
        number, into = divmod(step - self._first, self._round)
        if number < 0:
            return max(0, step - self.first_public_steps)
        first, revisit = known(self.first_private_steps), known(self.revisit_steps)
        return first + number * revisit + max(0, into - self.digest_length)

    def _aligned(self, client: Client, number: int) -> Indices:
        """Return a round's part of the public set: the same for everybody, without samples of equal pixels."""
        assert client.schema is not None
        order = generator(client.seed, "alignment", step=number).permutation(client.schema.distinct)
        return np.sort(order[: self.alignment_samples])

    def _view(self, client: Client, number: int) -> int:
        assert client.schema is not None
        return number % client.schema.views

    def _batch(self, client: Client, purpose: str, size: int, number: int, into: int) -> NDArray[np.int64]:
        """Return the positions of batch `into` of a stream through `size` samples that is drawn anew for each round."""
        wanted = client.training.public_batch_size
        parts = [
            generator(client.seed, f"{purpose} {number}", client.index, epoch).permutation(size)[part]
            for epoch, part in stream(size, into * wanted, (into + 1) * wanted)
        ]
        return np.concatenate(parts)


PRIVATE, DIGEST, LABELLED = 0, 1, 2  # what a step trains on


def scores(logits: Tensor) -> Tensor:
    """Return class scores: logits minus their mean, because a shift of all of them changes no prediction.

    >>> scores(torch.tensor([3.0, 0.0, 0.0]))
    tensor([ 2., -1., -1.])
    """
    return logits - logits.mean(-1, keepdim=True)


@torch.no_grad()
def sum_of_scores(snapshots: Sequence[Snapshot], rows: Rows) -> Tensor:
    """Return the sum of main heads' scores, which follow from probabilities up to the shift that `scores` removes."""
    total: Tensor | None = None
    for snapshot in snapshots:
        p_BC = snapshot.outputs(rows).probabilities_BHC[:, 0]
        scores_BC = scores(p_BC.clamp_min(torch.finfo(p_BC.dtype).tiny).log())
        total = scores_BC if total is None else total + scores_BC
    assert total is not None
    return total

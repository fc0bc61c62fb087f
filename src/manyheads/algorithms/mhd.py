"""Multi-Headed Distillation (Zhmoginov et al., CVPR 2023)."""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import field_validator, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads import distillation
from manyheads.algorithms.base import Neighbours
from manyheads.client import Batch, Client, Plan
from manyheads.confidence import CONFIDENCES
from manyheads.experiment import CHECKED, Fraction, NonNegative, Positive, Section, nearest
from manyheads.outputs import Outputs
from manyheads.seeds import generator
from manyheads.snapshot import Snapshot


class Ramp(Section):
    """The distillation terms are zero for the first `hold` of all steps and rise linearly over the next `rise`."""

    hold: Fraction = 0.1
    rise: Fraction = 0.3


@dataclass(frozen=True, config=CHECKED)
class MHD:
    """Head k of every client learns, sample by sample, from the surest of the heads k - 1 that it can ask."""

    distils: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True

    exchange: Literal["weights"] = "weights"
    nu_emb: NonNegative = 1.0
    nu_aux: NonNegative = 3.0
    targets_per_step: Positive = 1
    pool_size: Positive = 8
    pool_every: Positive = 100
    pool_start: Literal["initial", "empty"] = "initial"
    confidence: str = "max_probability"
    select: distillation.Select = "most_confident"
    same_level: bool = False
    self_target: bool = False
    ramp: Ramp = Ramp()

    @field_validator("confidence")
    @classmethod
    def _known_confidence(cls, name: str) -> str:
        if name not in CONFIDENCES:
            raise ValueError(f"unknown confidence; {nearest(name, CONFIDENCES)}")
        return name

    @model_validator(mode="after")
    def _fits(self) -> "MHD":
        if self.targets_per_step > self.pool_size:
            raise ValueError(
                f"targets_per_step = {self.targets_per_step}: at most pool_size = {self.pool_size} can be drawn"
            )
        if self.select == "all" and self.self_target:
            raise ValueError('self_target = true: has no meaning with select = "all", which does not choose')
        return self

    def exchange_steps(self, steps: int) -> range:
        return range(0 if self.pool_start == "initial" else self.pool_every, steps, self.pool_every)

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """At the start a pool full of snapshots, neighbour by neighbour; later that of a random neighbour."""
        members = tuple(neighbours)
        if not members:
            return []
        if step == 0:
            return [neighbours[members[entry % len(members)]] for entry in range(self.pool_size)]
        asked = int(generator(client.seed, "asked neighbour", client.index, step).integers(len(members)))
        return [neighbours[members[asked]]]

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Into the pool; equal snapshots are received once."""
        client.bytes_received += sum(snapshot.nbytes for snapshot in {id(s): s for s in received}.values())
        for snapshot in received:
            client.pool.add(snapshot, client.seed, client.index, step)

    def plan(self, client: Client, start: int, stop: int) -> Plan:
        """Which entries of the pool teach, the ramp, and with select = "random" the draws among candidates."""
        training, steps = client.training, range(start, stop)
        drawn = [client.pool.draw(self.targets_per_step, client.seed, client.index, step) for step in steps]
        factors = [distillation.ramp_factor(step, training.steps, self.ramp.hold, self.ramp.rise) for step in steps]
        plan = {"targets": np.array(drawn, dtype=np.int64).reshape(len(steps), -1), "ramp": np.array(factors)}
        if self.select == "random":
            shape = (training.public_batch_size, client.model.shape_HC[0] - 1)
            plan["uniform"] = np.stack(
                [generator(client.seed, "select", client.index, step).random(shape) for step in steps]
            )
        return plan

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Eq. 1: the private task on the main head, and both distillations on a public batch."""
        assert batch.public is not None
        # Two passes: one would mix private and public BatchNorm statistics.
        private_BHC, _ = client.model(batch.private.images)
        public_BHC, embedding_BE = client.model(batch.public.images)
        own = Outputs(public_BHC.detach().softmax(-1), embedding_BE.detach())
        foreign = [client.pool.entries[entry].outputs(batch.public) for entry in batch.plan["targets"].tolist()]
        p_JBKC, confidence_JBK = distillation.candidates(
            own,
            foreign,
            CONFIDENCES[self.confidence],
            same_level=self.same_level,
            self_target=self.self_target,
        )
        uniform = batch.plan.get("uniform")
        uniform_BK = None if uniform is None else torch.from_numpy(uniform).to(p_JBKC.device)
        target_BKC = distillation.targets(p_JBKC, confidence_JBK, self.select, uniform_BK)
        ramp = float(batch.plan["ramp"])
        embedding = distillation.embedding_loss(embedding_BE, [outputs.embedding_BE for outputs in foreign])
        return {
            "cross_entropy": cross_entropy(private_BHC[:, 0], batch.labels),
            "embedding": ramp * self.nu_emb * embedding,
            "prediction": ramp * self.nu_aux * distillation.prediction_loss(public_BHC, target_BKC),
        }

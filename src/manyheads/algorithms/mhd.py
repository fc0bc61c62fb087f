"""Multi-Headed Distillation (Zhmoginov et al., CVPR 2023)."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import field_validator, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.algorithms import distillation
from manyheads.algorithms.base import Algorithm, Lesson, Neighbours, Sent
from manyheads.client.client import SNAPSHOTS, Batch, Client, Plan
from manyheads.config.messages import nearest
from manyheads.config.types import CHECKED, Fraction, NonNegative, Positive, Section
from manyheads.errors import ConfigurationError
from manyheads.exchange.confidence import CONFIDENCES
from manyheads.exchange.density import Density
from manyheads.exchange.form import Form, Precision, Rest
from manyheads.exchange.predictions import WindowSnapshot
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.models.client_model import embeddings
from manyheads.outputs import Outputs
from manyheads.seeds import generator

DEFAULT_TOP_K = 8
OF_PREDICTIONS = ("top_k", "precision", "rest", "send_embedding")  # keys that say what a table holds
DENSITY_SAMPLES = 2_048  # private samples that a density model is fitted to, at most


class Ramp(Section):
    """The distillation terms are zero for the first `hold` of all steps and rise linearly over the next `rise`."""

    hold: Fraction = 0.1
    rise: Fraction = 0.3


@dataclass(frozen=True, config=CHECKED)
class MHD(Algorithm):
    """Head k of every client learns, sample by sample, from the surest of the heads k - 1 that it can ask."""

    teaches_heads: ClassVar[bool] = True
    reads_public: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True

    exchange: Literal["weights", "predictions"] = "weights"
    top_k: Positive | None = None  # 8, or all classes where there are fewer
    precision: Precision = "float16"
    rest: Rest = "spread"
    send_embedding: bool = True
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
    average_every: Positive = 50  # within groups

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

    @property
    def group_every(self) -> int:
        return self.average_every

    @property
    def compares_embeddings(self) -> bool:
        return self.nu_emb > 0.0 and (self.send_embedding or self.exchange == "weights")

    def completed(self, classes: int) -> "MHD":
        return self if self.top_k is not None else dataclasses.replace(self, top_k=min(DEFAULT_TOP_K, classes))

    def check(self, steps: int, classes: int) -> None:
        if self.exchange == "predictions" and self.top_k is not None and self.top_k > classes:
            raise ConfigurationError(
                f"algorithm.top_k = {self.top_k}: there are only {classes} classes; at most {classes}"
            )

    def idle(self, classes: int) -> list[str]:
        if self.exchange == "predictions":
            return []
        usual, own = MHD().completed(classes), self.completed(classes)
        return [key for key in OF_PREDICTIONS if getattr(own, key) != getattr(usual, key)]

    def sent(self, heads: int, classes: int) -> Sent | None:
        """The last head teaches nobody, unless others learn from the same level."""
        if self.exchange == "weights":
            return None
        form = Form(
            classes=classes,
            heads=heads if self.same_level else heads - 1,
            top_k=self.top_k or min(DEFAULT_TOP_K, classes),
            precision=self.precision,
            confidence=self.confidence == "density",
        )
        return Sent(form, self.compares_embeddings, self.rest)

    def window_rows(self, public_batch_size: int) -> int:
        return self.pool_every * public_batch_size * self.targets_per_step

    def exchange_steps(self, steps: int) -> Sequence[int]:
        return range(0 if self.pool_start == "initial" else self.pool_every, steps, self.pool_every)

    def prepare(self, client: Client, step: int) -> None:
        """With confidence = "density": what the client trained on, as its embedding sees it now."""
        if self.confidence == "density":
            client.memory.update(private_density(client, step).tensors())

    def show(self, client: Client, step: int) -> Snapshot:
        if client.asks_by_window:
            return client.snapshot(step)  # stays with its owner, who answers from it: `_ask_rows`
        return SNAPSHOTS[self.exchange](client, step)

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """At the start a pool full of snapshots, neighbour by neighbour; later that of a random neighbour."""
        members = tuple(neighbours)
        if not members:
            return []
        if step == 0:
            return [neighbours[members[entry % len(members)]] for entry in range(self.pool_size)]
        asked = int(generator(client.seed, "asked neighbour", client.index, step).integers(len(members)))
        return [neighbours[members[asked]]]

    def cost(self, client: Client, received: Sequence[Snapshot]) -> int:
        """Where the owner keeps its checkpoint, nothing came yet: its answers are counted when they are asked for."""
        return 0 if client.asks_by_window else super().cost(client, received)

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Into the pool."""
        for snapshot in received:
            client.pool.add(snapshot, client.seed, client.index, step)
        if client.asks_by_window:
            self._ask_rows(client, step)
            client.bytes_received += sum(entry.nbytes for entry in set(client.pool.entries))

    def resumed(self, client: Client, step: int) -> None:
        if client.asks_by_window:
            self._ask_rows(client, step - step % self.pool_every)

    def _ask_rows(self, client: Client, step: int) -> None:
        """Each entry of the pool is asked about the rows for which it is drawn until the next exchange."""
        assert client.catalogue is not None
        assert client.public is not None
        entries = client.pool.entries
        # Entries that are the same checkpoint are one, and are answered once.
        asked = {e.kept: e for e in entries if isinstance(e, WindowSnapshot)}
        for number, entry in enumerate(entries):
            if isinstance(entry, WeightsSnapshot):
                entries[number] = asked.setdefault(entry, WindowSnapshot(client.catalogue, entry))
        stop = min(step + self.pool_every, client.training.steps)
        if not entries or stop <= step:
            return
        samples_SB, views_SB, _ = client.public.drawn(step, stop, client.training.public_batch_size)
        drawn = [client.pool.draw(self.targets_per_step, client.seed, client.index, s) for s in range(step, stop)]
        for entry in asked.values():
            due = [at for at, chosen in enumerate(drawn) if any(entries[number] is entry for number in chosen)]
            entry.ask(samples_SB[due].ravel(), views_SB[due].ravel())

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
        # Apart: together, private and public samples would mix in the BatchNorm statistics.
        (private_BHC, _), (public_BHC, embedding_BE) = client.model.answers(batch.private.images, batch.public.images)
        p_JBKC, confidence_JBK = self._candidates(client, public_BHC.detach(), embedding_BE.detach(), batch.foreign)
        target_BKC = distillation.targets(p_JBKC, confidence_JBK, self.select, batch.array("uniform"))
        ramp = batch.number("ramp")
        embedding = embedding_BE.new_zeros(())
        if self.compares_embeddings:
            foreign, counts = batch.foreign_embeddings()
            widths = {client.model.embedding_width, *(other_BE.shape[-1] for other_BE in foreign)}
            own_BE = {width: client.model.mapped(embedding_BE, width) for width in sorted(widths)}
            embedding = distillation.embedding_loss(own_BE, foreign, counts)
        return {
            "cross_entropy": cross_entropy(private_BHC[:, 0], batch.labels),
            "embedding": ramp * self.nu_emb * embedding,
            "prediction": ramp * self.nu_aux * distillation.prediction_loss(public_BHC, target_BKC),
        }

    def _candidates(
        self, client: Client, logits_BHC: Tensor, embedding_BE: Tensor, foreign: Sequence[Outputs]
    ) -> tuple[Tensor, Tensor]:
        """All that may teach each auxiliary head, with their confidences."""
        p_BHC, density = logits_BHC.softmax(-1), Density.from_tensors(client.memory)
        measured_BH = None if density is None else density.confidence(p_BHC, embedding_BE)
        return distillation.candidates(
            Outputs(p_BHC, embedding_BE, measured_BH),
            foreign,
            CONFIDENCES[self.confidence],
            same_level=self.same_level,
            self_target=self.self_target,
        )

    @torch.no_grad()
    def lesson(self, client: Client, batch: Batch) -> Lesson | None:
        """The choice of `losses`, by the client as it answers others: in evaluation mode."""
        if self.select == "all":
            return None
        logits_BHC, embedding_BE = client.model(batch.public.images)
        p_JBKC, confidence_JBK = self._candidates(client, logits_BHC, embedding_BE, batch.foreign)
        choice_BK = distillation.choose(confidence_JBK, self.select, batch.array("uniform"))
        others = [client.pool.entries[entry].client for entry in batch.plan["targets"].tolist()]
        teachers_J = [client.index, *others, *(others if self.same_level else []), client.index][: len(p_JBKC)]
        class_JBK = p_JBKC.argmax(-1)
        return Lesson(choice_BK.new_tensor(teachers_J)[choice_BK], class_JBK.gather(0, choice_BK[None])[0])


@torch.no_grad()
def private_density(client: Client, step: int) -> Density:
    """Fitted to the client's own samples, as they are, without views."""
    rng = generator(client.seed, "density samples", client.index, step)
    chosen = np.sort(rng.permutation(client.private.indices)[:DENSITY_SAMPLES])
    samples = torch.from_numpy(chosen).to(client.private.pixels.device)
    embedding_RE = embeddings(client.model, client.private.pixels, samples)
    return Density.fit(embedding_RE, client.private.labels(samples), client.model.shape_HC[1])

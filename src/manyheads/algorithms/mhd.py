"""Multi-Headed Distillation (Zhmoginov et al., CVPR 2023)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from torch import Tensor

from manyheads.algorithms import distillation, recall, whom_to_ask
from manyheads.algorithms.base import Algorithm, Neighbours, Sends, TableContents, TeacherChoices
from manyheads.client.client import Batch, Client
from manyheads.client.plan import WindowPlan
from manyheads.config.experiment import TrainingConfig
from manyheads.config.knobs import DEFAULT_TOP_K, MHDKnobs, RunSize, known
from manyheads.config.types import CHECKED
from manyheads.errors import ConfigurationError
from manyheads.exchange.confidence import Confidence
from manyheads.exchange.named_confidences import check_confidence, confidence_named
from manyheads.exchange.pool import draw_targets
from manyheads.exchange.request import NO_ROWS
from manyheads.exchange.row_format import RowFormat
from manyheads.exchange.snapshot import Snapshot
from manyheads.imports import Trust
from manyheads.outputs import Outputs
from manyheads.seeds import generator

TABLE_KEYS = ("top_k", "precision", "rest", "send_embedding")  # they only matter for tables of predictions


@dataclass(frozen=True, config=CHECKED)
class MHD(MHDKnobs, Algorithm):
    """Multi-Headed Distillation: head k learns, sample by sample, from the surest of the heads k - 1 that it can ask.

    Eq. 1 to 5 are in distillation.py; fields have the names of the paper (docs/experiment.md).

    >>> MHD(nu_aux=1.0, exchange="predictions").table_contents(heads=4, classes=10).form.top_k
    8
    """

    has_auxiliary_heads: ClassVar[bool] = True
    reads_public: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True

    @property
    def group_every(self) -> int:
        return known(self.average_every)

    @property
    def exchange_every(self) -> int:
        return known(self.pool_every)

    def check_code(self, trust: Trust) -> None:
        if self.confidence is not None:
            check_confidence(self.confidence, trust)

    @property
    def teacher_confidence(self) -> Confidence:
        return confidence_named(self.confidence or "max_probability")

    @property
    def teachers_per_step(self) -> int:
        return self.targets_per_step

    @property
    def sends(self) -> Sends:
        return self.exchange

    def samples_per_step(self, training: TrainingConfig) -> float:
        return super().samples_per_step(training) + (3.0 + self.targets_per_step) * training.public_batch_size

    def knobs_for_trial(self, steps: int) -> Mapping[str, object]:
        return {"pool_every": min(self.exchange_every, steps - 1)}

    def knobs_for_little_memory(self) -> Mapping[str, object]:
        return {"pool_size": max(2, self.targets_per_step)}

    def knobs_sending_less(self, classes: int) -> Mapping[str, Mapping[str, object]]:
        def table(top_k: int, precision: str, *, embedding: bool = False) -> Mapping[str, object]:
            knobs = {"exchange": "predictions", "top_k": top_k, "precision": precision, "send_embedding": embedding}
            return knobs if embedding else knobs | {"nu_emb": 0.0}

        few = min(3, classes)
        found: dict[str, Mapping[str, object]] = {"weights": {"exchange": "weights"}}
        for top_k in sorted({1, few, classes}, reverse=True):
            found[f"top {top_k}, float16"] = table(top_k, "float16")
        found[f"top {few}, 8 bits"] = table(few, "uint8")
        if self.nu_emb > 0.0:
            found[f"top {few}, float16, embedding"] = table(few, "float16", embedding=True)
        return found

    @property
    def measures_with_public_labels(self) -> bool:
        return self.select == "oracle"

    @property
    def compares_embeddings(self) -> bool:
        return self.nu_emb > 0.0 and (self.send_embedding or self.exchange == "weights")

    def check(self, steps: int, classes: int) -> None:
        if self.exchange == "predictions" and self.top_k is not None and self.top_k > classes:
            raise ConfigurationError(
                f"algorithm.top_k = {self.top_k}: there are only {classes} classes; at most {classes}"
            )

    def idle_keys(self, classes: int) -> list[str]:
        if self.exchange == "predictions":
            return []
        size = RunSize(steps=1, nodes=1, classes=classes)  # of these keys, one depends on the classes
        usual, own = MHD().with_defaults(size), self.with_defaults(size)
        return [key for key in TABLE_KEYS if getattr(own, key) != getattr(usual, key)]

    def table_contents(self, heads: int, classes: int) -> TableContents | None:
        """Return what tables hold: the last head teaches nobody, unless others learn from the same level."""
        if self.exchange == "weights":
            return None
        form = RowFormat(
            classes=classes,
            heads=heads if self.same_level else heads - 1,
            top_k=self.top_k or min(DEFAULT_TOP_K, classes),
            precision=self.precision,
            confidence=self.teacher_confidence.fitted,
        )
        return TableContents(form, self.compares_embeddings, self.rest)

    def remembered_bytes(self, public_samples: int, heads: int, classes: int) -> int:
        return recall.bytes_needed(public_samples, heads - 1, classes) if self._remembers else 0

    def kept_about_others_bytes(self, public_samples: int, clients: int) -> int:
        return whom_to_ask.bytes_needed(public_samples, clients) if self._asks_the_surest else 0

    def rows_per_exchange(self, public_batch_size: int) -> int:
        return self.exchange_every * public_batch_size * self.targets_per_step

    def exchange_steps(self, steps: int) -> Sequence[int]:
        return range(0 if self.pool_start == "initial" else self.exchange_every, steps, self.exchange_every)

    def prepare(self, client: Client, step: int) -> None:
        """Fit the confidence to the client as it is now, at the first exchange in each `fit_every` steps.

        Before, let what was heard since the last exchange count in the choice of whom to ask.
        """
        if self._asks_the_surest:
            self._begin_asking(client)
            whom_to_ask.take_in(client.memory)
        every, before = known(self.fit_every), step - self.exchange_every
        fitted = self.teacher_confidence.loaded(client.memory)
        if fitted and before >= 0 and step // every == before // every:
            return
        client.memory.update(self.teacher_confidence.saved(self.teacher_confidence.fit(client, step)))

    @torch.no_grad()
    def memory_fits(self, client: Client, step: int) -> bool:
        if self._remembers and step > 0:
            (heads, classes), public = client.model.shape_HC, client.public
            assert public is not None
            if not recall.fits(client.memory, len(public), heads - 1, classes, client.state.values):
                return False
        if self._asks_the_surest and step > 0:
            assert client.public is not None
            if not whom_to_ask.fits(client.memory, len(client.public), client.clients):
                return False
        return self.teacher_confidence.works_with(self.teacher_confidence.loaded(client.memory), client.model)

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask for a pool full of snapshots at the start, neighbour by neighbour, and later for one random neighbour's.

        If tables hold only the rows that are due, ask every snapshot of the coming pool about those.
        """
        members = tuple(neighbours)
        if not members:
            return []
        if step == 0:
            asked = [members[entry % len(members)] for entry in range(known(self.pool_size))]
        else:
            asked = [members[int(generator(client.seed, "asked neighbour", client.index, step).integers(len(members)))]]
        if client.schema is None or client.schema.whole:
            return [neighbours[owner] for owner in asked]
        pool = [(entry.client, entry.step) for entry in client.pool.entries]
        for owner in asked:
            place = client.pool.next_place(client.seed, client.index, step) if step else len(pool)
            pool[place : place + 1] = [(owner, step)]
        return self._ask_about_due_rows(client, neighbours, pool, step)

    def ask_again(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        if client.schema is None or client.schema.whole:  # setup/build.py decides when tables are whole
            return []
        pool = [(entry.client, entry.step) for entry in client.pool.entries]
        return self._ask_about_due_rows(client, neighbours, pool, step - step % self.exchange_every)

    def _ask_about_due_rows(
        self, client: Client, neighbours: Neighbours, pool: Sequence[tuple[int, int]], step: int
    ) -> list[Snapshot]:
        """Ask each snapshot of a pool (owner, step) about the rows for which it is drawn until the next exchange."""
        assert client.schema is not None
        assert client.public is not None
        stop = min(step + self.exchange_every, client.training.steps)
        if stop <= step:
            return []
        samples_SB, views_SB, _ = client.public.drawn(step, stop, client.training.public_batch_size)
        drawn = self._entries(client, pool, range(step, stop))
        if drawn.ndim == 2:  # the same for all samples
            drawn = drawn[:, :, None]
        rows = {}
        for snapshot in dict.fromkeys(pool):
            entries = [entry for entry, other in enumerate(pool) if other == snapshot]
            due_SB = np.broadcast_to(np.isin(drawn, entries).any(1), samples_SB.shape)
            rows[snapshot] = client.schema.rows_of(samples_SB[due_SB], views_SB[due_SB])
        # If the answer that is to replace an entry is refused, that entry stays: its owner keeps it until then.
        leaving = {(entry.client, entry.step) for entry in client.pool.entries} - set(pool)
        due_or_not = [
            *((*snapshot, rows[snapshot]) for snapshot in pool),
            *((*old, NO_ROWS) for old in sorted(leaving)),
        ]
        return [neighbours.ask(owner, asked, step=at, keep=True) for owner, at, asked in due_or_not]

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Add what is new to the pool, and replace entries by newer answers about the same snapshot."""
        client.pool.refresh(snapshot for snapshot in received if snapshot.step != step)
        for snapshot in received:
            if snapshot.step == step:
                client.pool.add(snapshot, client.seed, client.index, step)

    def plan(self, client: Client, start: int, stop: int) -> WindowPlan:
        """Draw or choose who teaches, and with select = "random" which candidates; compute the ramps."""
        training, steps = client.training, range(start, stop)
        if self._remembers:
            (heads, classes), public = client.model.shape_HC, client.public
            assert public is not None
            recall.begin(client.memory, public, heads - 1, classes, client.state.values)
        drawn = self._entries(client, None, steps)
        arrays = {
            name: np.array([distillation.ramp_factor(step, training.steps, ramp.hold, ramp.rise) for step in steps])
            for name, ramp in (("ramp", self.ramp), ("pull ramp", self.pull_ramp))
        }
        if self._asks_the_surest:
            arrays["asked"] = np.array([entry.client for entry in client.pool.entries] or [0])[drawn]
        if self.select == "random":
            shape = (training.public_batch_size, client.model.shape_HC[0] - 1)
            arrays["uniform"] = np.stack(
                [generator(client.seed, "select", client.index, step).random(shape) for step in steps]
            )
        return WindowPlan(targets=drawn, arrays=arrays)

    def _entries(self, client: Client, coming: Sequence[tuple[int, int]] | None, steps: range) -> NDArray[np.int64]:
        """Return which entries of the pool teach at each step, or teach each sample: of a `coming` pool or as it is."""
        number, own = self.targets_per_step, {"seed": client.seed, "client": client.index}
        if not self._asks_the_surest:
            entries = len(client.pool if coming is None else coming)
            drawn = [draw_targets(entries, number, step=step, **own) for step in steps]
            return np.array(drawn, dtype=np.int64).reshape(len(steps), min(number, entries))
        assert client.public is not None
        self._begin_asking(client)
        pool = [(entry.client, entry.step) for entry in client.pool.entries] if coming is None else coming
        samples_SB = client.public.drawn(steps.start, steps.stop, client.training.public_batch_size)[0]
        return whom_to_ask.choose(client.memory, client.public, samples_SB, pool, number, steps=steps, **own)

    def _begin_asking(self, client: Client) -> None:
        assert client.public is not None
        whom_to_ask.begin(client.memory, client.public, client.clients, client.state.values.device)

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Return the terms of Eq. 1: the private task on the main head, and both distillations on a public batch.

        Beyond the paper (`own_labels`), auxiliary heads learn the client's own labels, too.
        """
        pull_ramp = batch.number("pull ramp") if self.pull_ramp.in_use else 1.0
        auxiliary_heads = client.model.shape_HC[0] - 1
        pull = self.pull_of_heads(auxiliary_heads) * pull_ramp
        own_pull = 1.0 / (self.nu_aux * auxiliary_heads) if self._learns_own_labels else 1.0
        # Two passes: in one, private and public samples would mix in the BatchNorm statistics.
        (private_BHC, _), (public_BHC, embedding_BE) = client.model.forward_batches(
            batch.private.images, batch.public.images, pulls=(own_pull, pull), main_apart=self._learns_own_labels
        )
        answers = batch.foreign
        if self._asks_the_surest:
            self._note_how_sure(client, batch, answers)
        p_JBKC, confidence_JBK = self._candidates(client, public_BHC.detach(), embedding_BE.detach(), answers)
        target_BKC = self._targets(client, batch, p_JBKC, confidence_JBK)
        ramp = batch.number("ramp")
        embedding = embedding_BE.new_zeros(())
        if self.compares_embeddings:
            foreign = batch.foreign_embeddings()
            widths = {client.model.embedding_width, *(other_BE.shape[-1] for other_BE in foreign.embeddings)}
            own_BE = {width: client.model.mapped(embedding_BE, width) for width in sorted(widths)}
            embedding = distillation.embedding_loss(own_BE, foreign.embeddings, foreign.counts, foreign.known)
        own = {}
        if self._learns_own_labels:
            rate = known(self.own_labels) * self.nu_aux
            own["own_labels"] = rate * client.summed_private_loss(private_BHC[:, 1:], batch.labels)
        return {
            "cross_entropy": client.private_loss(private_BHC[:, 0], batch.labels),
            **own,
            "embedding": pull_ramp * ramp * self.nu_emb * embedding,
            "prediction": ramp * self.nu_aux * distillation.prediction_loss(public_BHC, target_BKC),
        }

    def _targets(self, client: Client, batch: Batch, p_JBKC: Tensor, confidence_JBK: Tensor) -> Tensor:
        """Return what each auxiliary head learns: of a mixture also what was heard when a sample was seen before."""
        if self.select == "mixture":
            heard_BKC = distillation.mixture(p_JBKC, confidence_JBK, self.teacher_confidence, self.sharpness)
            if self._remembers:
                assert client.public is not None
                samples = batch.public.samples
                heard_BKC = recall.add_heard(client.memory, client.public, samples, heard_BKC, known(self.remember))
            return heard_BKC / heard_BKC.sum(-1, keepdim=True)
        if self.select == "oracle":
            confidence_JBK = distillation.prefer_right(p_JBKC, confidence_JBK, batch.public_labels())
        return distillation.targets(p_JBKC, confidence_JBK, self.select, batch.array("uniform"))

    @torch.no_grad()
    def _note_how_sure(self, client: Client, batch: Batch, foreign: Sequence[Outputs]) -> None:
        """Keep how sure the main heads of those that were asked are of a batch, the first targets last."""
        asked_JB = batch.array("asked")
        assert client.public is not None
        assert asked_JB is not None
        for owners_B, outputs in reversed(list(zip(asked_JB, foreign, strict=True))):
            sure_B = self.teacher_confidence.weight(self.teacher_confidence.of(outputs)[:, 0])
            samples = batch.public.samples
            whom_to_ask.note(client.memory, client.public, samples, owners_B, sure_B, outputs.known_B)

    @property
    def _asks_the_surest(self) -> bool:
        return self.ask == "surest"

    @property
    def _learns_own_labels(self) -> bool:
        return known(self.own_labels) * self.nu_aux > 0.0

    @property
    def _remembers(self) -> bool:
        return self.select == "mixture" and known(self.remember) > 0.0

    def pull_of_heads(self, auxiliary_heads: int) -> float:
        """Return what the gradient that auxiliary heads send into the backbone on public samples is multiplied by.

        They learn at the rate nu_aux, and pull with `pull` all together, however many there are.

        >>> MHD(nu_aux=3.0, pull=3.0).pull_of_heads(4), MHD(nu_aux=3.0, pull="sum").pull_of_heads(4)
        (0.25, 1.0)
        """
        if self.pull == "sum" or self.nu_aux == 0.0:
            return 1.0
        return self.pull / (self.nu_aux * auxiliary_heads)

    def _candidates(
        self, client: Client, logits_BHC: Tensor, embedding_BE: Tensor, foreign: Sequence[Outputs]
    ) -> tuple[Tensor, Tensor]:
        """Return all that may teach each auxiliary head, with their confidences (Eq. 4)."""
        own = Outputs(logits_BHC.softmax(-1), embedding_BE)
        return distillation.candidates(
            self.teacher_confidence.with_confidence(own, self.teacher_confidence.loaded(client.memory)),
            foreign,
            self.teacher_confidence,
            same_level=self.same_level,
            self_target=self.self_target,
        )

    @torch.no_grad()
    def teacher_choices(self, client: Client, batch: Batch) -> TeacherChoices | None:
        """Return the choice that `losses` makes, but by the client in evaluation mode, as others see it."""
        if self.select == "all":
            return None
        logits_BHC, embedding_BE = client.model(batch.public.images)
        p_JBKC, confidence_JBK = self._candidates(client, logits_BHC, embedding_BE, batch.foreign)
        class_JBK = p_JBKC.argmax(-1).where(confidence_JBK > -torch.inf, -1)
        if self.select == "oracle":
            confidence_JBK = distillation.prefer_right(p_JBKC, confidence_JBK, batch.public_labels())
        choice_BK = distillation.choose(confidence_JBK, self.select, batch.array("uniform"))
        others_JB = batch.teachers_JB()
        own_1B = others_JB.new_full((1, len(choice_BK)), client.index)
        teachers_JB = torch.cat([own_1B, others_JB, *([others_JB] if self.same_level else []), own_1B])
        teacher_BK, class_BK = teachers_JB.T.gather(1, choice_BK), class_JBK.gather(0, choice_BK[None])[0]
        return TeacherChoices(teacher_BK, class_BK, class_JBK)

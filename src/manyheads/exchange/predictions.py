"""Snapshots that are tables of predictions: made by their owner, checked and read by their receiver."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.arrays import Indices
from manyheads.data.batches import Rows, Samples
from manyheads.errors import SnapshotError
from manyheads.exchange.form import Form, Rest
from manyheads.exchange.message import Header, Table, decode
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.models.client_model import CHUNK
from manyheads.outputs import Outputs


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What all clients of an experiment agree on: the names of public rows, and what is said about each."""

    experiment: str
    form: Form
    rest: Rest  # where the mass that is not sent goes: evenly to the classes that are not named, or to the named ones
    embedding_widths: tuple[int, ...]  # by client; 0: not sent
    public: Samples
    names_P: NDArray[np.uint64]  # of the public samples, in their order
    whole: bool  # every table holds every row; otherwise only those that its receiver draws until the next exchange

    @property
    def views(self) -> int:
        return self.public.views or 1

    @cached_property
    def twin_P(self) -> Indices:
        """For each public sample the first one with the same pixels, mostly itself."""
        return twins(self.names_P)

    @cached_property
    def distinct(self) -> Indices:
        """The positions of the public samples, each set of equal pixels once."""
        return np.unique(self.twin_P)

    def declare(self) -> list[tuple[Indices, int]]:
        """Every row there is, as (positions of public samples, view)."""
        return [(self.distinct, view) for view in range(self.views)]

    @cached_property
    def _order(self) -> Indices:
        return np.argsort(self.names_P, kind="stable")

    def table(self, shown: WeightsSnapshot, rows: Sequence[tuple[Indices, int]]) -> bytes:
        """What a client says about rows, as it sends it. Runs where the client's weights are."""
        form, width = self.form, self.embedding_widths[shown.client]
        kinds = {name: kind for name, (kind, _) in form.layout(0, width).items()}
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in kinds}
        for positions, view in rows:
            for chunk in np.split(positions, range(CHUNK, len(positions), CHUNK)):
                said = shown.outputs(self.public.named(chunk, view, shown.values.dtype))
                class_BHT, p_BHT = form.probabilities(said.probabilities_BHC)
                parts["names"].append(self.names_P[chunk])
                parts["views"].append(np.full(len(chunk), view))
                parts["probabilities"].append(p_BHT.cpu().numpy())
                if class_BHT is not None:
                    parts["classes"].append(class_BHT.cpu().numpy())
                if form.confidence:
                    assert said.confidence_BH is not None
                    parts["confidence"].append(said.confidence_BH[:, : form.heads].cpu().numpy())
                if width:
                    assert said.embedding_BE is not None
                    parts["embedding"].append(form.embedding(said.embedding_BE).cpu().numpy())
        arrays = {name: np.concatenate(of).astype(kinds[name], copy=False) for name, of in parts.items()}
        return Table(self.header(shown, rows), arrays).encode()

    def header(self, shown: WeightsSnapshot, rows: Sequence[tuple[Indices, int]]) -> Header:
        """The header of `table(shown, rows)`."""
        return Header(
            version=1,
            experiment=self.experiment,
            client=shown.client,
            step=shown.step,
            rows=sum(len(positions) for positions, _ in rows),
            embedding=self.embedding_widths[shown.client],
            form=self.form,
        )

    def quantized(self, said: Outputs, dtype: torch.dtype) -> Outputs:
        """What a receiver reads of what a client says: the same bits as by way of a message, without leaving the
        device. Nothing is checked, as nothing came from elsewhere.
        """
        form, confidence_BH, embedding_BE = self.form, None, None
        p_BHC = form.all_probabilities(*form.probabilities(said.probabilities_BHC), self.rest, dtype)
        if form.confidence:
            assert said.confidence_BH is not None
            confidence_BH = said.confidence_BH[:, : form.heads].half().to(dtype)
        if any(self.embedding_widths):
            assert said.embedding_BE is not None
            embedding_BE = form.embedding(said.embedding_BE).to(dtype)
        return Outputs(p_BHC, embedding_BE, confidence_BH)

    def accept(self, message: bytes) -> "PredictionsSnapshot":
        """A message that fits this experiment, ready to be asked; anything else is refused."""
        table = decode(message)
        header = table.header
        who = f"client {header.client}, step {header.step}"
        if header.experiment != self.experiment:
            raise SnapshotError(f"{who}: made for another experiment; all clients need the same experiment file")
        if header.client >= len(self.embedding_widths):
            raise SnapshotError(f"{who}: there are only {len(self.embedding_widths)} clients")
        if header.form != self.form or header.embedding != self.embedding_widths[header.client]:
            raise SnapshotError(f"{who}: says {_shown(header)}, which is not what this experiment exchanges")
        order = self._order
        place = np.searchsorted(self.names_P, table.arrays["names"], sorter=order)
        position = order[np.minimum(place, len(order) - 1)]
        unknown = np.flatnonzero(self.names_P[position] != table.arrays["names"])
        if len(unknown):
            name = int(table.arrays["names"][unknown[0]])
            raise SnapshotError(
                f"{who}: speaks of sample {name:016x}, which is not in the public set; all clients need the same one"
            )
        if (table.arrays["views"] >= self.views).any():
            raise SnapshotError(
                f"{who}: speaks of view {table.arrays['views'].max()}; data.public_views = {self.views}"
            )
        row_PV = np.full((len(self.names_P), self.views), -1, dtype=np.int64)
        row_PV[position, table.arrays["views"]] = np.arange(header.rows)
        return PredictionsSnapshot(self, message, table, row_PV[self.twin_P])


def twins(names_P: NDArray[np.uint64]) -> Indices:
    """For each name the position of its first occurrence."""
    _, first, inverse = np.unique(names_P, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def _shown(header: Header) -> str:
    form = header.form
    return (
        f"the {form.top_k} largest of {form.classes} classes of {form.heads} heads in {form.precision}, "
        f"{'with' if form.confidence else 'without'} confidence, an embedding of {header.embedding}"
    )


class PredictionsSnapshot:
    """A table of predictions, in the hands of its receiver."""

    def __init__(self, catalogue: Catalogue, message: bytes, table: Table, row_PV: NDArray[np.int64]) -> None:
        self.client, self.step = table.header.client, table.header.step
        self._catalogue, self._message = catalogue, message
        device = catalogue.public.pixels.device
        held = {name: array.copy() for name, array in table.arrays.items() if name not in ("names", "views")}
        if "classes" in held:
            held["classes"] = held["classes"].astype(np.int32)  # torch does little with uint16
        self._arrays = {name: torch.from_numpy(array).to(device) for name, array in held.items()}
        self._row_PV = torch.from_numpy(row_PV).to(device)
        self._whole = bool((row_PV >= 0).all())
        self._public = torch.from_numpy(catalogue.public.indices).to(device)

    @property
    def nbytes(self) -> int:
        return len(self._message)

    def knows(self, rows: Rows) -> bool:
        """Whether it can be asked about these rows."""
        return bool((self._rows(rows) >= 0).all())

    def outputs(self, rows: Rows) -> Outputs:
        form, dtype = self._catalogue.form, rows.images.dtype
        row_B = self._rows(rows)
        if not self._whole and bool((row_B < 0).any()):
            raise SnapshotError(f"client {self.client}, step {self.step}: was asked about a row that it did not send")
        class_BHT = self._arrays["classes"][row_B].long() if form.names_classes else None
        p_BHC = form.all_probabilities(class_BHT, self._arrays["probabilities"][row_B], self._catalogue.rest, dtype)
        confidence_BH = self._arrays["confidence"][row_B].to(dtype) if form.confidence else None
        embedding_BE = self._arrays["embedding"][row_B].to(dtype) if "embedding" in self._arrays else None
        return Outputs(p_BHC, embedding_BE, confidence_BH)

    def tensors(self) -> dict[str, Tensor]:
        return {"message": torch.frombuffer(bytearray(self._message), dtype=torch.uint8)}

    def _rows(self, rows: Rows) -> Tensor:
        position_B = torch.searchsorted(self._public, rows.samples)
        return self._row_PV[position_B, rows.view_numbers]


class WindowSnapshot:
    """For large public sets: the owner keeps its checkpoint and sends, exchange by exchange, the rows that are due.

    Which ones are due follows from named draws, so owner and receiver both know without asking.
    """

    def __init__(self, catalogue: Catalogue, kept: WeightsSnapshot) -> None:
        self.client, self.step = kept.client, kept.step
        self._catalogue, self.kept = catalogue, kept  # the checkpoint stays with its owner
        self._due: list[tuple[Indices, int]] = []
        self._answers: PredictionsSnapshot | None = None

    @property
    def nbytes(self) -> int:
        """Of the answers to the rows that are due."""
        return self._catalogue.header(self.kept, self._due).message_size if self._due else 0

    def ask(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> None:
        """These rows are due now; the ones before are let go. The message is made when the first of them is read."""
        position = np.searchsorted(self._catalogue.public.indices, samples)
        position = self._catalogue.twin_P[position]
        self._due = [(np.unique(position[views == view]), int(view)) for view in np.unique(views)]
        self._answers = None

    def outputs(self, rows: Rows) -> Outputs:
        if not self._due:
            raise SnapshotError(f"client {self.client}, step {self.step}: no row was asked for")
        if self._answers is None:
            self._answers = self._catalogue.accept(self._catalogue.table(self.kept, self._due))
        return self._answers.outputs(rows)

    def tensors(self) -> dict[str, Tensor]:
        return self.kept.tensors()

"""The schema of tables of predictions, on which all clients agree: which rows there are, and the format of each."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.config.types import Rest
from manyheads.data.arrays import Indices
from manyheads.data.batches import Samples
from manyheads.errors import SnapshotError
from manyheads.exchange.message import Header, Table, diverged_text
from manyheads.exchange.request import PublicRows
from manyheads.exchange.row_format import RowFormat
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.models.client_model import CHUNK
from manyheads.outputs import Outputs


@dataclass(frozen=True, eq=False)
class TableSchema:
    """The public rows by name, and the format in which each client answers about them.

    >>> from manyheads.data.batches import Pixels
    >>> images = np.zeros((2, 8, 8, 1), dtype=np.uint8)  # two equal images
    >>> draws = {"seed": 0, "purpose": "public", "client": 0, "augment": "none", "views_of": 0, "views": 1}
    >>> public = Samples(Pixels(images, torch.device("cpu")), None, np.arange(2), **draws)
    >>> form = RowFormat(classes=10, heads=2, top_k=3, precision="float16", confidence=False)
    >>> schema = TableSchema("experiment", form, "spread", (16,), public, np.array([7, 7], np.uint64), whole=True)
    >>> len(schema.every_row), schema.first_occurrence_P
    (1, array([0, 0]))
    """

    experiment: str
    form: RowFormat
    rest: Rest  # where mass that is not sent goes: "spread" over the classes that are not named, or to the named ones
    embedding_widths: tuple[int, ...]  # by client; 0: not sent
    public: Samples
    names_P: NDArray[np.uint64]  # of the public samples, in their order
    whole: bool  # tables hold every row; otherwise only those that the receiver draws until the next exchange

    @property
    def views(self) -> int:
        return self.public.views or 1

    @cached_property
    def first_occurrence_P(self) -> Indices:
        """The position, for each public sample, of the first one with the same pixels: mostly its own."""
        return first_occurrences(self.names_P)

    @cached_property
    def distinct(self) -> Indices:
        """The positions of public samples with different pixels."""
        return np.unique(self.first_occurrence_P)

    @cached_property
    def every_row(self) -> PublicRows:
        """All rows: every sample in every view."""
        return PublicRows(tuple((self.distinct, view) for view in range(self.views)))

    def rows_of(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> PublicRows:
        """Return the rows of samples that are named as in batches."""
        return PublicRows.of(self.first_occurrence_P[np.searchsorted(self.public.indices, samples)], views)

    def positions_of(self, names: NDArray[np.uint64]) -> Indices:
        """Return the positions of public samples by name; for an unknown name, the position of another sample."""
        order = self._order
        place = np.searchsorted(self.names_P, names, sorter=order)
        return np.asarray(order[np.minimum(place, len(order) - 1)])

    @cached_property
    def _order(self) -> Indices:
        return np.argsort(self.names_P, kind="stable")

    def encode(self, snapshot: WeightsSnapshot, rows: PublicRows, withheld: PublicRows | None = None) -> bytes:
        """Return the message of a client about rows, made where its weights are.

        Rows that are `withheld` are named, without predictions; the format has to allow it.
        """
        header = self.header(snapshot, rows, withheld)
        layout = header.form.layout(header.rows, header.embedding, header.withheld)
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in layout}
        for positions, view in rows:
            for chunk in np.split(positions, range(CHUNK, len(positions), CHUNK)):
                self._append_predictions(snapshot, chunk, view, parts)
        for positions, view in withheld or ():
            self._append_names(positions, view, parts)
        arrays = {
            name: np.concatenate(parts[name]).astype(kind, copy=False) if parts[name] else np.zeros(shape, kind)
            for name, (kind, shape) in layout.items()
        }
        return Table(header, arrays).encode()

    def _append_predictions(
        self, snapshot: WeightsSnapshot, chunk: Indices, view: int, parts: dict[str, list[NDArray[Any]]]
    ) -> None:
        outputs = snapshot.outputs(self.public.rows_in_view(chunk, view, snapshot.values.dtype))
        self._check_numbers(snapshot, outputs)
        class_BHT, p_BHT = self.form.probabilities(outputs.probabilities_BHC)
        self._append_names(chunk, view, parts)
        parts["probabilities"].append(p_BHT.cpu().numpy())
        if class_BHT is not None:
            parts["classes"].append(class_BHT.cpu().numpy())
        if self.form.confidence:
            assert outputs.confidence_BH is not None
            parts["confidence"].append(outputs.confidence_BH[:, : self.form.heads].cpu().numpy())
        if self.embedding_widths[snapshot.client]:
            assert outputs.embedding_BE is not None
            parts["embedding"].append(self.form.embedding(outputs.embedding_BE).cpu().numpy())

    def _check_numbers(self, snapshot: WeightsSnapshot, outputs: Outputs) -> None:
        """Refuse to encode NaN or infinity: in 8 bits they would look like numbers."""
        heads, sent = self.form.heads, self.embedding_widths[snapshot.client] > 0
        values = {
            "probability": outputs.probabilities_BHC[:, :heads],
            "confidence": outputs.confidence_BH[:, :heads] if outputs.confidence_BH is not None else None,
            "embedding": outputs.embedding_BE if sent else None,
        }
        for name, tensor in values.items():
            if tensor is not None and not torch.isfinite(tensor).all():
                raise SnapshotError(diverged_text(snapshot.client, snapshot.step, name))

    def _append_names(self, chunk: Indices, view: int, parts: dict[str, list[NDArray[Any]]]) -> None:
        parts["names"].append(self.names_P[chunk])
        parts["views"].append(np.full(len(chunk), view))

    def header(self, snapshot: WeightsSnapshot, rows: PublicRows, withheld: PublicRows | None = None) -> Header:
        """Return the header of `encode(snapshot, rows, withheld)`."""
        return Header(
            version=1,
            experiment=self.experiment,
            client=snapshot.client,
            step=snapshot.step,
            rows=len(rows),
            embedding=self.embedding_widths[snapshot.client],
            form=self.form,
            withheld=0 if withheld is None else len(withheld),
        )

    def quantized(self, outputs: Outputs, dtype: torch.dtype) -> Outputs:
        """Return outputs as a receiver reads them: with the bits of a message, without leaving the device.

        Nothing is checked, as nothing came from elsewhere.
        """
        form, confidence_BH, embedding_BE = self.form, None, None
        p_BHC = form.all_probabilities(*form.probabilities(outputs.probabilities_BHC), self.rest, dtype)
        if form.precision == "uint8":  # adds 0, but NaN stays NaN
            p_BHC = p_BHC + 0.0 * outputs.probabilities_BHC[:, : form.heads].amax(-1, keepdim=True).to(dtype)
        if form.confidence:
            assert outputs.confidence_BH is not None
            confidence_BH = outputs.confidence_BH[:, : form.heads].half().to(dtype)
        if any(self.embedding_widths):
            assert outputs.embedding_BE is not None
            embedding_BE = form.embedding(outputs.embedding_BE).to(dtype)
        return Outputs(p_BHC, embedding_BE, confidence_BH)


def first_occurrences(names_P: NDArray[np.uint64]) -> Indices:
    """Return for each name the position of its first occurrence.

    >>> first_occurrences(np.array([5, 9, 5], dtype=np.uint64))
    array([0, 1, 0])
    """
    _, first, inverse = np.unique(names_P, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)

"""Snapshots that are tables of predictions, as their receiver has them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.errors import SnapshotError
from manyheads.exchange.message import Header, Table, decode
from manyheads.exchange.request import PublicRows
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.outputs import Outputs

MISSING, WITHHELD = -1, -2  # in the place of a row's number


def accept_message(schema: TableSchema, message: bytes, asked: PublicRows | None = None) -> "PredictionsSnapshot":
    """Return the snapshot in a message that fits this experiment and answers every row that was asked (None: all).

    Anything else is refused with a SnapshotError.
    """
    table = decode(message)
    header = table.header
    who = f"client {header.client}, step {header.step}"
    if header.experiment != schema.experiment:
        raise SnapshotError(f"{who}: made for another experiment; all clients need the same experiment file")
    if header.client >= len(schema.embedding_widths):
        raise SnapshotError(f"{who}: there are only {len(schema.embedding_widths)} clients")
    if header.form != schema.form or header.embedding != schema.embedding_widths[header.client]:
        raise SnapshotError(f"{who}: holds {_described(header)}, which is not what this experiment exchanges")
    return PredictionsSnapshot(schema, message, table, _row_numbers(schema, table, asked, who))


def _row_numbers(schema: TableSchema, table: Table, asked: PublicRows | None, who: str) -> NDArray[np.int64]:
    """Return for each public sample and view the number of its row in a table of exactly the rows that were asked."""
    names, views = table.arrays["names"], table.arrays["views"]
    position = schema.positions_of(names)
    unknown = np.flatnonzero(schema.names_P[position] != names)
    if len(unknown):
        raise SnapshotError(
            f"{who}: names sample {int(names[unknown[0]]):016x}, which is not in the public set; "
            "all clients need the same one"
        )
    if (views >= schema.views).any():
        raise SnapshotError(f"{who}: names view {views.max()}; data.public_views = {schema.views}")
    row_PV = np.full((len(schema.names_P), schema.views), MISSING, dtype=np.int64)
    row_PV[position, views] = np.where(np.arange(len(names)) < table.header.rows, np.arange(len(names)), WITHHELD)
    due = schema.every_row if asked is None else asked
    for positions, view in due:
        missing = positions[row_PV[positions, view] == MISSING]
        if len(missing):
            raise SnapshotError(
                f"{who}: lacks sample {int(schema.names_P[missing[0]]):016x}, view {view}, and "
                f"{len(missing) - 1} more that were asked; the sender must answer every row"
            )
    if len(names) > len(due):
        raise SnapshotError(f"{who}: answers {len(names)} rows where {len(due)} were asked")
    return np.asarray(row_PV[schema.first_occurrence_P])


def _described(header: Header) -> str:
    form = header.form
    return (
        f"the {form.top_k} largest of {form.classes} classes of {form.heads} heads in {form.precision}, "
        f"{'with' if form.confidence else 'without'} confidence, an embedding of {header.embedding}"
    )


class _Received:
    """A snapshot without a checkpoint in this process."""

    source = None

    def as_sent(self, outputs: Outputs, dtype: torch.dtype) -> Outputs:
        return outputs


class PredictionsSnapshot(_Received):
    """A table of predictions that was accepted."""

    def __init__(self, schema: TableSchema, message: bytes, table: Table, row_PV: NDArray[np.int64]) -> None:
        self.client, self.step = table.header.client, table.header.step
        self._schema, self._message = schema, message
        device = schema.public.pixels.device
        arrays = {name: array.copy() for name, array in table.arrays.items() if name not in ("names", "views")}
        if "classes" in arrays:
            arrays["classes"] = arrays["classes"].astype(np.int32)  # torch does little with uint16
        self._arrays = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        self._row_PV = torch.from_numpy(row_PV).to(device)
        self._answers_all = bool((row_PV >= 0).all())
        self._public = torch.from_numpy(schema.public.indices).to(device)

    @property
    def nbytes(self) -> int:
        return len(self._message)

    def outputs(self, rows: Rows) -> Outputs:
        """Return what was sent; `known_B` marks the rows that were asked for and not withheld."""
        form, dtype = self._schema.form, rows.images.dtype
        row_B, known_B = self._rows(rows), None
        if not (self._answers_all or bool((row_B >= 0).all())):
            known_B, row_B = row_B >= 0, row_B.clamp_min(0)
            if not len(self._arrays["probabilities"]):
                return unknown_outputs(self._schema, self.client, rows)
        class_BHT = self._arrays["classes"][row_B].long() if form.names_classes else None
        p_BHC = form.all_probabilities(class_BHT, self._arrays["probabilities"][row_B], self._schema.rest, dtype)
        confidence_BH = self._arrays["confidence"][row_B].to(dtype) if form.confidence else None
        embedding_BE = self._arrays["embedding"][row_B].to(dtype) if "embedding" in self._arrays else None
        return Outputs(p_BHC, embedding_BE, confidence_BH, known_B)

    def tensors(self) -> dict[str, Tensor]:
        """Return the message, or nothing if tables hold only some rows: the owner keeps what answers about all."""
        if not self._schema.whole:
            return {}
        return {"message": torch.frombuffer(bytearray(self._message), dtype=torch.uint8)}

    def _rows(self, rows: Rows) -> Tensor:
        position_B = torch.searchsorted(self._public, rows.samples)
        return self._row_PV[position_B, rows.view_numbers]


class UnencodedTable:
    """A table that does not leave its owner's process: nothing is encoded, and what is read has the same bits."""

    def __init__(self, schema: TableSchema, kept: WeightsSnapshot, rows: PublicRows) -> None:
        self.client, self.step, self.source = kept.client, kept.step, kept
        self._schema, self._rows = schema, rows

    @property
    def nbytes(self) -> int:
        """The size of the message that would travel."""
        return self._schema.header(self.source, self._rows).message_size if len(self._rows) else 0

    def outputs(self, rows: Rows) -> Outputs:
        return self.as_sent(self.source.outputs(rows), rows.images.dtype)

    def as_sent(self, outputs: Outputs, dtype: torch.dtype) -> Outputs:
        return self._schema.quantized(outputs, dtype)

    def tensors(self) -> dict[str, Tensor]:
        return {}


class PlaceholderSnapshot(_Received):
    """A snapshot without predictions, which its owner keeps: no row of it is due, or the answer was refused."""

    nbytes = 0

    def __init__(self, schema: TableSchema, client: int, step: int) -> None:
        self.client, self.step, self._schema = client, step, schema

    def outputs(self, rows: Rows) -> Outputs:
        return unknown_outputs(self._schema, self.client, rows)

    def tensors(self) -> dict[str, Tensor]:
        return {}


def unknown_outputs(schema: TableSchema, client: int, rows: Rows) -> Outputs:
    """Return outputs of a client for rows without predictions: none of them is known."""
    size, like = len(rows.samples), rows.images
    width = schema.embedding_widths[client]
    return Outputs(
        like.new_full((size, schema.form.heads, schema.form.classes), 1.0 / schema.form.classes),
        like.new_zeros(size, width) if width else None,
        like.new_zeros(size, schema.form.heads) if schema.form.confidence else None,
        torch.zeros(size, dtype=torch.bool, device=like.device),
    )

"""What all clients agree on about tables of predictions: which rows there are, and what is said about each."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.data.arrays import Indices
from manyheads.data.batches import Samples
from manyheads.exchange.form import Form, Rest
from manyheads.exchange.message import Header, Table
from manyheads.exchange.request import PublicRows
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.models.client_model import CHUNK
from manyheads.outputs import Outputs


@dataclass(frozen=True, eq=False)
class TableSchema:
    """The public rows by name, and the form in which each client speaks about them."""

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

    @cached_property
    def every_row(self) -> PublicRows:
        """Every row there is."""
        return PublicRows(tuple((self.distinct, view) for view in range(self.views)))

    def rows_of(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> PublicRows:
        """Return the rows of samples as batches name them."""
        return PublicRows.of(self.twin_P[np.searchsorted(self.public.indices, samples)], views)

    def positions_of(self, names: NDArray[np.uint64]) -> Indices:
        """Return the positions of public samples by name; of a name that there is not, that of another."""
        order = self._order
        place = np.searchsorted(self.names_P, names, sorter=order)
        return np.asarray(order[np.minimum(place, len(order) - 1)])

    @cached_property
    def _order(self) -> Indices:
        return np.argsort(self.names_P, kind="stable")

    def encode(self, shown: WeightsSnapshot, rows: PublicRows, withheld: PublicRows | None = None) -> bytes:
        """Return what a client says about rows, as it sends it: made where the client's weights are.

        Rows that are `withheld` are named, and nothing is said about them; the form has to allow it.
        """
        header = self.header(shown, rows, withheld)
        layout = header.form.layout(header.rows, header.embedding, header.withheld)
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in layout}
        for positions, view in rows:
            for chunk in np.split(positions, range(CHUNK, len(positions), CHUNK)):
                self._say(shown, chunk, view, parts)
        for positions, view in withheld or ():
            self._name(positions, view, parts)
        arrays = {
            name: np.concatenate(parts[name]).astype(kind, copy=False) if parts[name] else np.zeros(shape, kind)
            for name, (kind, shape) in layout.items()
        }
        return Table(header, arrays).encode()

    def _say(self, shown: WeightsSnapshot, chunk: Indices, view: int, parts: dict[str, list[NDArray[Any]]]) -> None:
        said = shown.outputs(self.public.named(chunk, view, shown.values.dtype))
        class_BHT, p_BHT = self.form.probabilities(said.probabilities_BHC)
        self._name(chunk, view, parts)
        parts["probabilities"].append(p_BHT.cpu().numpy())
        if class_BHT is not None:
            parts["classes"].append(class_BHT.cpu().numpy())
        if self.form.confidence:
            assert said.confidence_BH is not None
            parts["confidence"].append(said.confidence_BH[:, : self.form.heads].cpu().numpy())
        if self.embedding_widths[shown.client]:
            assert said.embedding_BE is not None
            parts["embedding"].append(self.form.embedding(said.embedding_BE).cpu().numpy())

    def _name(self, chunk: Indices, view: int, parts: dict[str, list[NDArray[Any]]]) -> None:
        parts["names"].append(self.names_P[chunk])
        parts["views"].append(np.full(len(chunk), view))

    def header(self, shown: WeightsSnapshot, rows: PublicRows, withheld: PublicRows | None = None) -> Header:
        """Return the header of `encode(shown, rows, withheld)`."""
        return Header(
            version=1,
            experiment=self.experiment,
            client=shown.client,
            step=shown.step,
            rows=len(rows),
            embedding=self.embedding_widths[shown.client],
            form=self.form,
            withheld=0 if withheld is None else len(withheld),
        )

    def quantized(self, said: Outputs, dtype: torch.dtype) -> Outputs:
        """Return what a receiver reads of what a client says: the same bits as by way of a message, without leaving
        the device. Nothing is checked, as nothing came from elsewhere.
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


def twins(names_P: NDArray[np.uint64]) -> Indices:
    """Return for each name the position of its first occurrence."""
    _, first, inverse = np.unique(names_P, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)

"""What travels: a table of what a model says about named rows of the public set, and its encoding in bytes.

A row is (public sample, view). The sample is named by a hash of its pixels, the view by its number, so both sides speak
of the same pixels. For each row and head the table holds the `top_k` largest probabilities and their classes; beside
them, where it is asked for, the confidence that the owner measured and the direction of the embedding.

One message:  magic | SHA-256 of all that follows | length of the header | header (JSON) | arrays
Arrays:       names, views, classes (none where all are sent), probabilities, confidence, embedding; little-endian,
              one after the other; their sizes follow from the header.
Decoding trusts nothing: whatever is not exactly this is a SnapshotError.
"""

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor
from torch.nn.functional import normalize

from manyheads.data.arrays import Indices
from manyheads.data.batches import Rows, Samples
from manyheads.errors import SnapshotError
from manyheads.experiment import Count, Positive, Section
from manyheads.models.client_model import CHUNK
from manyheads.outputs import Outputs
from manyheads.snapshot import WeightsSnapshot

MAGIC, DIGEST = b"MHPREDICT", 32

Precision = Literal["float32", "float16", "uint8"]
Rest = Literal["spread", "renormalise"]
DTYPES = {"float32": (torch.float32, "<f4"), "float16": (torch.float16, "<f2"), "uint8": (torch.uint8, "u1")}


class Form(Section):
    """What a table says about each row: agreed on by all clients."""

    classes: Annotated[int, Field(ge=2, le=65_536)]
    heads: Annotated[int, Field(gt=0, le=65_536)]  # the first so many; the last teaches nobody unless `same_level`
    top_k: Positive
    precision: Precision
    confidence: bool  # whether the owner's own measure is sent

    @property
    def names_classes(self) -> bool:
        """Where all probabilities are sent, in the order of the classes, none has to be named."""
        return self.top_k < self.classes

    def probabilities(self, p_BHC: Tensor) -> tuple[Tensor | None, Tensor]:
        """The largest ones and their classes, rounded as they will be sent."""
        class_BHT, p_BHT = None, p_BHC[:, : self.heads].float()
        if self.names_classes:
            p_BHT, class_BHT = p_BHT.topk(self.top_k, dim=-1)
        if self.precision == "uint8":
            p_BHT = (p_BHT * 255.0).round()
        return class_BHT, p_BHT.to(DTYPES[self.precision][0])

    def all_probabilities(self, class_BHT: Tensor | None, p_BHT: Tensor, rest: Rest, dtype: torch.dtype) -> Tensor:
        """What a receiver makes of them: a probability for every class."""
        p_BHT = p_BHT.to(dtype)
        if self.precision == "uint8":
            p_BHT = p_BHT / 255.0
        if not self.names_classes and self.precision == "float32":
            return p_BHT  # nothing is missing
        return _all_classes(p_BHT, class_BHT, self.classes, rest)

    def embedding(self, embedding_BE: Tensor) -> Tensor:
        """Its direction, in 8 bits; beside float32 probabilities as it is."""
        unit_BE = normalize(embedding_BE.float(), dim=-1)
        if self.precision == "float32":
            return unit_BE
        largest_B1 = unit_BE.abs().amax(-1, keepdim=True).clamp_min(1e-12)
        return (unit_BE / largest_B1 * 127.0).round().to(torch.int8)

    @property
    def tolerance(self) -> float:
        """By how much rounding may lift a sum of probabilities above 1."""
        return 1e-3 + (self.top_k / 510.0 if self.precision == "uint8" else 0.0)

    def layout(self, rows: int, embedding: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name, type and shape of each array of a message, in their order."""
        shape_NHT = (rows, self.heads, self.top_k)
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {"names": ("<u8", (rows,)), "views": ("<u2", (rows,))}
        if self.names_classes:
            arrays["classes"] = ("u1" if self.classes <= 256 else "<u2", shape_NHT)
        arrays["probabilities"] = (DTYPES[self.precision][1], shape_NHT)
        if self.confidence:
            arrays["confidence"] = ("<f2", (rows, self.heads))
        if embedding:
            arrays["embedding"] = ("<f4" if self.precision == "float32" else "i1", (rows, embedding))
        return arrays


class Header(Section):
    version: Literal[1]
    experiment: str
    client: Count
    step: Count
    rows: Annotated[int, Field(ge=0, lt=2**40)]
    embedding: Annotated[int, Field(ge=0, lt=2**24)]  # its width; 0: not sent
    form: Form

    @property
    def encoded(self) -> bytes:
        return self.model_dump_json().encode()

    @property
    def array_sizes(self) -> dict[str, int]:
        """Bytes of each array that follows."""
        layout = self.form.layout(self.rows, self.embedding)
        return {name: np.dtype(kind).itemsize * math.prod(shape) for name, (kind, shape) in layout.items()}

    @property
    def message_size(self) -> int:
        return len(MAGIC) + DIGEST + 4 + len(self.encoded) + sum(self.array_sizes.values())


@dataclass(frozen=True, eq=False)
class Table:
    """A decoded message."""

    header: Header
    arrays: dict[str, NDArray[Any]]

    def encode(self) -> bytes:
        header = self.header.encoded
        content = struct.pack("<I", len(header)) + header + b"".join(array.tobytes() for array in self.arrays.values())
        return MAGIC + hashlib.sha256(content).digest() + content


def decode(message: bytes) -> Table:
    """The table that a message holds, or a SnapshotError that says what is wrong with it."""
    start = len(MAGIC) + DIGEST
    if len(message) < start + 4 or message[: len(MAGIC)] != MAGIC:
        raise SnapshotError("not a message of predictions; is the sender another program?")
    content = message[start:]
    if hashlib.sha256(content).digest() != message[len(MAGIC) : start]:
        raise SnapshotError("the message was damaged on its way (its checksum differs); have it sent again")
    (size,) = struct.unpack_from("<I", content)
    try:
        header = Header.model_validate_json(content[4 : 4 + size])
    except ValidationError:
        raise SnapshotError("not a message of version 1; all clients need the same manyheads") from None
    table = Table(header, _arrays(header, content[4 + size :]))
    _check_numbers(table)
    return table


def _arrays(header: Header, content: bytes) -> dict[str, NDArray[Any]]:
    form, who = header.form, f"client {header.client}, step {header.step}"
    if form.top_k > form.classes:
        raise SnapshotError(f"{who}: top_k = {form.top_k} of {form.classes} classes; at most {form.classes}")
    sizes = header.array_sizes
    if sum(sizes.values()) != len(content):
        raise SnapshotError(f"{who}: the message holds {len(content)} bytes of arrays instead of {sum(sizes.values())}")
    arrays, offset = {}, 0
    for name, (kind, shape) in form.layout(header.rows, header.embedding).items():
        arrays[name] = np.frombuffer(content, kind, math.prod(shape), offset).reshape(shape)
        offset += sizes[name]
    return arrays


def _check_numbers(table: Table) -> None:
    """Everything that a table must be, whoever reads it."""
    header, arrays = table.header, table.arrays
    who = f"client {header.client}, step {header.step}"
    p_NHT = arrays["probabilities"].astype(np.float64) / (255.0 if header.form.precision == "uint8" else 1.0)
    for name, values in (("probability", p_NHT), *((n, arrays[n]) for n in ("confidence", "embedding") if n in arrays)):
        if not np.isfinite(values).all():
            raise SnapshotError(f"{who}: holds a {name} that is not a number; the sender's model has diverged")
    if (p_NHT < 0.0).any() or (p_NHT.sum(-1) > 1.0 + header.form.tolerance).any():
        raise SnapshotError(f"{who}: holds probabilities below 0 or above 1 in sum; the sender must send a softmax")
    measured = arrays.get("confidence", np.zeros(0))
    if (measured < 0.0).any() or (measured > 1.0).any():
        raise SnapshotError(f"{who}: holds a confidence below 0 or above 1")
    if header.form.names_classes:
        if (p_NHT[..., 1:] > p_NHT[..., :-1]).any():
            raise SnapshotError(f"{who}: holds probabilities that are not sorted; the largest must come first")
        named = np.sort(arrays["classes"], axis=-1)
        if (named >= header.form.classes).any() or (named[..., 1:] == named[..., :-1]).any():
            raise SnapshotError(f"{who}: names a class twice, or one that does not exist")
    order = np.lexsort((arrays["views"], arrays["names"]))
    same = [arrays[name][order][1:] == arrays[name][order][:-1] for name in ("names", "views")]
    if (same[0] & same[1]).any():
        raise SnapshotError(f"{who}: holds a row twice")


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

    def heard(self, said: Outputs, dtype: torch.dtype) -> Outputs:
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


def _all_classes(p_BHT: Tensor, class_BHT: Tensor | None, classes: int, rest: Rest) -> Tensor:
    """Probabilities of every class from the few that were sent.

    A class that is not named is at most as likely as the last one that is, whatever rounding did.
    """
    sent, total_BH1 = p_BHT.shape[-1], p_BHT.sum(-1, keepdim=True)
    if class_BHT is None:
        even_BH1, p_BHC = total_BH1.new_zeros(()), p_BHT
    else:
        left_BH1 = (1.0 - total_BH1).clamp_min(0.0) if rest == "spread" else torch.zeros_like(total_BH1)
        even_BH1 = torch.minimum(left_BH1 / (classes - sent), p_BHT[..., -1:])
        p_BHC = even_BH1.expand(*p_BHT.shape[:2], classes).scatter(-1, class_BHT, p_BHT)
    total_BH1 = total_BH1 + even_BH1 * (classes - sent)
    return torch.where(total_BH1 > 0.0, p_BHC / total_BH1.clamp_min(1e-12), 1.0 / classes)


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

"""Messages: a table of a model's predictions for named rows of the public set, and its encoding in bytes.

A row is (public sample, view). The sample is named by a hash of its pixels, the view by its number, so both sides mean
the same pixels. For each row and head the table holds the `top_k` largest probabilities and their classes; beside them,
if asked for, the confidence that the owner measured and the direction of the embedding.

One message:  magic | SHA-256 of all that follows | length of the header | header (JSON) | arrays
Arrays:       names, views, classes (none if all are sent), probabilities, confidence, embedding; little-endian,
              one after the other; their sizes follow from the header.
Decoding trusts nothing: whatever is not exactly this is a SnapshotError.
"""

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from manyheads.config.types import Count, Section
from manyheads.errors import SnapshotError
from manyheads.exchange.row_format import RowFormat

MAGIC, DIGEST = b"MHPREDICT", 32


class Header(Section):
    """The header of a message: whose table it is, of which step, and the sizes of its arrays."""

    version: Literal[1]
    experiment: str
    client: Count
    step: Count
    rows: Annotated[int, Field(ge=0, lt=2**40)]
    embedding: Annotated[int, Field(ge=0, lt=2**24)]  # its width; 0: not sent
    form: RowFormat
    withheld: Annotated[int, Field(ge=0, lt=2**40)] = 0  # rows that are named, without a prediction

    @model_validator(mode="after")
    def _may_withhold(self) -> Self:
        if self.withheld and not self.form.withholds:
            raise ValueError("rows are withheld, which the form does not allow")
        return self

    @property
    def encoded(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()

    @property
    def array_sizes(self) -> dict[str, int]:
        """The bytes of each array that follows."""
        layout = self.form.layout(self.rows, self.embedding, self.withheld)
        return {name: np.dtype(kind).itemsize * math.prod(shape) for name, (kind, shape) in layout.items()}

    @property
    def message_size(self) -> int:
        return len(MAGIC) + DIGEST + 4 + len(self.encoded) + sum(self.array_sizes.values())


@dataclass(frozen=True, eq=False)
class Table:
    """A decoded message.

    >>> form = RowFormat(classes=3, heads=1, top_k=2, precision="float16", confidence=False)
    >>> header = Header(version=1, experiment="e", client=0, step=10, rows=1, embedding=0, form=form)
    >>> row = {"names": np.array([5], "<u8"), "views": np.array([0], "<u2"), "classes": np.array([[[2, 0]]], "u1")}
    >>> table = Table(header, row | {"probabilities": np.array([[[0.75, 0.125]]], "<f2")})
    >>> decode(table.encode()).arrays["classes"]
    array([[[2, 0]]], dtype=uint8)
    """

    header: Header
    arrays: dict[str, NDArray[Any]]

    def encode(self) -> bytes:
        header = self.header.encoded
        content = struct.pack("<I", len(header)) + header + b"".join(array.tobytes() for array in self.arrays.values())
        return MAGIC + hashlib.sha256(content).digest() + content


def decode(message: bytes) -> Table:
    """Return the table that a message holds, or raise a SnapshotError that says what is wrong with it."""
    start = len(MAGIC) + DIGEST
    if len(message) < start + 4 or message[: len(MAGIC)] != MAGIC:
        raise SnapshotError("not a message of predictions; is the sender another program?")
    content = message[start:]
    if hashlib.sha256(content).digest() != message[len(MAGIC) : start]:
        raise SnapshotError("the message was damaged on its way (its checksum differs); ask for it again")
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
    for name, (kind, shape) in form.layout(header.rows, header.embedding, header.withheld).items():
        arrays[name] = np.frombuffer(content, kind, math.prod(shape), offset).reshape(shape)
        offset += sizes[name]
    return arrays


def diverged_text(client: int, step: int, name: str) -> str:
    """Return the message about a table with NaN or infinity in it."""
    return f"client {client}, step {step}: holds a {name} that is not a number; the sender's model has diverged"


def _check_numbers(table: Table) -> None:
    """Check everything that must be true of any table, whoever reads it."""
    header, arrays = table.header, table.arrays
    who = f"client {header.client}, step {header.step}"
    with np.errstate(invalid="ignore"):  # a signalling NaN warns when it is cast; it is refused below
        p_NHT = arrays["probabilities"].astype(np.float64) / (255.0 if header.form.precision == "uint8" else 1.0)
    for name, values in (("probability", p_NHT), *((n, arrays[n]) for n in ("confidence", "embedding") if n in arrays)):
        if not np.isfinite(values).all():
            raise SnapshotError(diverged_text(header.client, header.step, name))
    least, most = header.form.sums
    sum_NH = p_NHT.sum(-1)
    if (p_NHT < 0.0).any() or (sum_NH > most).any():
        raise SnapshotError(f"{who}: holds probabilities below 0 or above 1 in sum; the sender must send a softmax")
    if (sum_NH < least).any():
        raise SnapshotError(
            f"{who}: holds probabilities that add up to {sum_NH.min():.3g}; the {header.form.top_k} largest of "
            f"{header.form.classes} add up to at least {least:.3g}, so the sender must send a softmax"
        )
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

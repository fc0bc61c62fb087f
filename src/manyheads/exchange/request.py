"""The request of one client to another: a snapshot as of a step, or its answer about rows of the public set."""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from manyheads.data.arrays import Indices


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Rows of the public set: for each view the positions of public samples, in order and each once.

    >>> rows = PublicRows.of(np.array([7, 3, 7]), views=np.array([0, 0, 1]))
    >>> [(positions.tolist(), view) for positions, view in rows]
    [([3, 7], 0), ([7], 1)]
    """

    by_view: tuple[tuple[Indices, int], ...]

    @classmethod
    def of(cls, positions: Indices, views: NDArray[np.int64]) -> Self:
        """Return the rows of (position, view) pairs in any order, perhaps with repetitions."""
        return cls(tuple((np.unique(positions[views == view]), int(view)) for view in np.unique(views)))

    def __len__(self) -> int:
        return sum(len(positions) for positions, _ in self.by_view)

    def __iter__(self) -> Iterator[tuple[Indices, int]]:
        return iter(self.by_view)

    @cached_property
    def digest(self) -> bytes:
        """A hash: equal for equal rows."""
        found = hashlib.blake2b(digest_size=16)
        for positions, view in self.by_view:
            found.update(view.to_bytes(8, "little") + len(positions).to_bytes(8, "little"))
            found.update(positions.astype("<i8").data)
        return found.digest()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as one bit for each public sample, compressed: a request is to be small beside its answer."""
        return _unpacked, (tuple((zlib.compress(_bits(positions), 9), view) for positions, view in self.by_view),)


def _bits(positions: Indices) -> bytes:
    mask = np.zeros(int(positions[-1]) + 1 if len(positions) else 0, dtype=bool)
    mask[positions] = True
    return np.packbits(mask).tobytes()


def _unpacked(packed: Sequence[tuple[bytes, int]]) -> PublicRows:
    bits = [(np.frombuffer(zlib.decompress(content), np.uint8), view) for content, view in packed]
    return PublicRows(tuple((np.flatnonzero(np.unpackbits(own)), view) for own, view in bits))


NO_ROWS = PublicRows(())


RequestKey = tuple[int, int, bytes | None]  # owner, step, rows: all that an answer depends on


@dataclass(frozen=True)
class Request:
    """A request of one client to another, for a snapshot or for rows of its table."""

    asker: int
    owner: int
    step: int  # of the owner's snapshot
    rows: PublicRows | None  # None: all, or a checkpoint where weights are exchanged
    keep: tuple[int, ...] = ()  # steps of the owner's snapshots to keep: the asker will ask about them again

    @property
    def key(self) -> RequestKey:
        """The part of the request that the answer depends on: askers with one key get one answer."""
        return self.owner, self.step, None if self.rows is None else self.rows.digest

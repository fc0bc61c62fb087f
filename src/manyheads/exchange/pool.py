"""The rolling pool: the snapshots that a client may learn from.

Whom to ask for snapshots: `collect` of the algorithm. Who teaches: `draw`, or algorithms/whom_to_ask.py.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from manyheads.exchange.snapshot import Snapshot
from manyheads.seeds import generator


class Pool:
    """A pool of at most `size` snapshots of other clients; a new one replaces a random entry once it is full.

    Entries are shared: a snapshot in several pools is one object in memory.

    >>> Pool(size=8, entries=["a", "b", "c"]).draw(targets_per_step=2, seed=0, client=3, step=417)
    [0, 2]
    """

    def __init__(self, size: int, entries: Sequence[Snapshot] = ()) -> None:
        self.size = size
        self.entries = list(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, snapshot: Snapshot, seed: int, client: int, step: int) -> None:
        """Add the snapshot that `client` received at `step`."""
        place = self.next_place(seed, client, step)
        self.entries[place : place + 1] = [snapshot]

    def next_place(self, seed: int, client: int, step: int) -> int:
        """Return the place of a new snapshot among the entries."""
        if len(self.entries) < self.size:
            return len(self.entries)
        return int(generator(seed, "replaced entry", client, step).integers(self.size))

    def refresh(self, newer: Iterable[Snapshot]) -> None:
        """Replace entries by newer answers about the same snapshots."""
        by_origin = {(snapshot.client, snapshot.step): snapshot for snapshot in newer}
        self.entries = [by_origin.get((entry.client, entry.step), entry) for entry in self.entries]

    def draw(self, targets_per_step: int, seed: int, client: int, step: int) -> list[int]:
        """Return which entries teach `client` at `step`: drawn without replacement, all if there are fewer."""
        return draw_targets(len(self.entries), targets_per_step, seed, client, step)


def draw_targets(entries: int, targets_per_step: int, seed: int, client: int, step: int) -> list[int]:
    """Draw which of so many entries teach `client` at `step`."""
    rng = generator(seed, "targets", client, step)
    drawn: list[int] = rng.permutation(np.arange(entries))[:targets_per_step].tolist()
    return drawn

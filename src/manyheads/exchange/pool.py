"""The rolling pool: the snapshots that a client may learn from."""

from collections.abc import Sequence

import numpy as np

from manyheads.exchange.snapshot import Snapshot
from manyheads.seeds import generator


class Pool:
    """At most `size` snapshots of other clients; a new one replaces a random entry once the pool is full.

    Entries are shared: a snapshot that several pools show is one object in memory.
    """

    def __init__(self, size: int, entries: Sequence[Snapshot] = ()) -> None:
        self.size = size
        self.entries = list(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, snapshot: Snapshot, seed: int, client: int, step: int) -> None:
        """Take in what `client` received at `step`."""
        if len(self.entries) < self.size:
            self.entries.append(snapshot)
        else:
            self.entries[int(generator(seed, "replaced entry", client, step).integers(self.size))] = snapshot

    def draw(self, targets_per_step: int, seed: int, client: int, step: int) -> list[int]:
        """Which entries teach `client` at `step`: drawn without replacement, all of them where there are fewer."""
        rng = generator(seed, "targets", client, step)
        drawn: list[int] = rng.permutation(np.arange(len(self.entries)))[:targets_per_step].tolist()
        return drawn

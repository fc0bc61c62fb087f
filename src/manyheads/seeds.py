"""Randomness has names: every random choice is a pure function of (seed, purpose, client, step).

Nothing in manyheads draws from a global generator. So a resumed run equals an uninterrupted one, every engine
sees the same batches, peers need no shared state, and a test can ask for the batch of client 3 at step 417.
"""

import hashlib
from functools import lru_cache

import numpy as np

EVERYONE = -1  # the client of draws that all clients share


def generator(seed: int, purpose: str, client: int = EVERYONE, step: int = 0) -> np.random.Generator:
    """Return the generator of one named choice: the same name gives the same draws, different names independent ones.

    Philox is counter-based: seed, purpose and client make its key, the step the highest word of its counter. What
    is drawn once per epoch or per view passes the number of that as `step`.

    >>> generator(0, "targets", client=3, step=417).integers(8)
    np.int64(2)
    """
    counter = np.array([0, 0, 0, step], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=_key(seed, purpose, client), counter=counter))


@lru_cache(maxsize=4096)
def _key(seed: int, purpose: str, client: int) -> int:
    name = f"{seed}/{purpose}/{client}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

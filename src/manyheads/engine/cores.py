"""The processor cores that may be used."""

import os

from manyheads.errors import ConfigurationError


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number_of_workers(asked: int | None, nodes: int) -> int:
    """Return the number of workers: as many as were asked for, by default one per usable core."""
    if asked is None:
        return min(usable_cores(), nodes)
    if not 1 <= asked <= nodes:
        raise ConfigurationError(f"--workers {asked}: this experiment can use 1 to {nodes} (clients, or groups)")
    return asked

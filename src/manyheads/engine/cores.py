"""How many processor cores there are to use."""

import os

from manyheads.errors import ConfigurationError


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number_of_workers(asked: int | None, nodes: int) -> int:
    """As many as were asked for; otherwise one for each core that this process may use."""
    if asked is None:
        return min(usable_cores(), nodes)
    if not 1 <= asked <= nodes:
        raise ConfigurationError(f"--workers {asked}: this experiment can use 1 to {nodes} (clients, or groups)")
    return asked

"""The memory of this machine, checked before it is needed; and what to say if it is too little."""

import contextlib
import errno
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from manyheads.errors import ManyheadsError, TrainingError

ADVICE = "lower training.batch_size, training.public_batch_size, model.width, clients or algorithm.pool_size"
OF_LIBRARIES = "libraries need more to be loaded: end other programs, or raise the limit (ulimit -v)"
OF_CONTAINERS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Return the largest number of bytes that a process may use, on this machine or in its container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in OF_CONTAINERS:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
            limits.append(int(Path(file).read_text()))
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min(limits if own == resource.RLIM_INFINITY else [*limits, own])


def check_memory(needed: int, what: str) -> None:
    """Raise a MemoryError before anything is allocated, if more is needed than the machine has.

    A machine with too little left grants a request all the same, and later kills the process that uses it.
    """
    if needed > machine_memory():
        raise MemoryError(f"{what} would take {gigabytes(needed)}, and this machine has {gigabytes(machine_memory())}")


def gigabytes(count: int) -> str:
    """Return a number of bytes as text.

    >>> gigabytes(24_500_000_000)
    '24.5 GB'
    """
    return f"{count / 1e9:,.1f} GB"


@contextlib.contextmanager
def enough_memory(advice: str = ADVICE, kind: type[ManyheadsError] = TrainingError) -> Iterator[None]:
    """Turn errors about too little memory, of a GPU or the machine, into one line that says what needs less."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError, ImportError, SystemError) as error:
        if not ran_out(error):
            raise
        if isinstance(error, ImportError | SystemError):
            advice = OF_LIBRARIES
        which = "out of GPU memory" if type(error).__name__ == "OutOfMemoryError" else "out of memory"
        raise kind(f"{which}: {_reason(error)}; {advice}") from None


def ran_out(error: BaseException) -> bool:
    """Tell whether an error is about too little memory; torch has a class for that of a GPU only."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):  # as the loader says it, of a library
        return "failed to map segment" in str(error) or "annot allocate memory" in str(error)
    if isinstance(error, SystemError):  # a library that forgot to say why
        return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    told = "can't allocate memory" in str(error) or "Storage size calculation overflowed" in str(error)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or told


def _reason(error: Exception) -> str:
    asked = re.search(r"you tried to allocate (\d+) bytes", str(error))
    if asked:
        return f"{gigabytes(int(asked[1]))} more were needed"
    return str(error).strip().partition("\n")[0] or "there is too little"

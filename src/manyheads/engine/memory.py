"""What to say where the memory of a GPU runs out."""

import contextlib
from collections.abc import Iterator

import torch

from manyheads.errors import TrainingError

KNOBS = "lower training.batch_size, training.public_batch_size, model.width, clients or algorithm.pool_size"


@contextlib.contextmanager
def enough_memory() -> Iterator[None]:
    """Where the memory of a GPU runs out: say what needs less."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(f"out of GPU memory: {str(error).splitlines()[0]}; {KNOBS}") from None

"""Checking that a run fits into memory, before any is allocated."""

import itertools

from manyheads.errors import ConfigurationError
from manyheads.memory import check_memory
from manyheads.setup.resolved import ResolvedExperiment


def check_fits_memory(resolved: ResolvedExperiment) -> None:
    """Refuse an experiment that does not fit into this machine's memory, wherever its clients train."""
    experiment, training = resolved.experiment, resolved.experiment.training
    pairs, longest = experiment.clients**2 * resolved.heads, _longest_window(resolved)
    _refuse(f"clients = {experiment.clients}", 32 * pairs, "the accuracy of every client on the data of every client")
    _refuse(
        f"training.log_every = {training.log_every}, batch_size = {training.batch_size}",
        16 * longest * _images(resolved),
        f"the draws for {longest:,} steps",
    )
    views = experiment.data.public_views
    if (
        resolved.algorithm.table_contents(resolved.heads, resolved.dataset.classes) is not None
    ):  # each row then has a place
        _refuse(f"data.public_views = {views}", 8 * len(resolved.split.public) * views, "a list of all public rows")


def check_training_fits_memory(resolved: ResolvedExperiment) -> None:
    """Refuse clients and batches that do not fit, if they are to be in this machine's memory and not in a GPU's."""
    experiment, training = resolved.experiment, resolved.experiment.training
    _refuse(
        f"clients = {experiment.clients}, model.width = {experiment.model.width}",
        12 * sum(model.parameters for model in resolved.models),
        "the weights, gradients and momentum of all clients",
    )
    _refuse(
        f"training.batch_size = {training.batch_size}, public_batch_size = {training.public_batch_size}",
        4 * _images(resolved) * max(model.kept for model in resolved.models),
        "what a step keeps for its backward pass",
    )
    public, classes = len(resolved.split.public), resolved.dataset.classes
    _refuse(
        f"algorithm.remember = {experiment.algorithm.options().get('remember')}",
        experiment.clients * resolved.algorithm.remembered_bytes(public, resolved.heads, classes),
        f"what {experiment.clients} clients remember of {public:,} public samples",
        advice="set it to 0, or lower model.auxiliary_heads",
    )
    _refuse(
        f'algorithm.ask = "{experiment.algorithm.options().get("ask")}"',
        experiment.clients * resolved.algorithm.kept_about_others_bytes(public, experiment.clients),
        f"how sure {experiment.clients} clients were of {public:,} public samples, as each of them keeps it,",
        advice='set it to "drawn", or use fewer public samples',
    )


def _refuse(keys: str, needed: int, what: str, advice: str | None = None) -> None:
    try:
        check_memory(needed, what)
    except MemoryError as error:
        advice = advice or f"lower {'one of them' if ',' in keys else 'it'}"
        raise ConfigurationError(f"{keys}: {error}; {advice}") from None


def _images(resolved: ResolvedExperiment) -> int:
    """Return the number of images in one step of one client."""
    training = resolved.experiment.training
    return training.batch_size + (training.public_batch_size if resolved.algorithm.reads_public else 0)


def _longest_window(resolved: ResolvedExperiment) -> int:
    """Return the largest number of steps between two edges, as far as the experiment determines it."""
    experiment = resolved.experiment
    edges = sorted({0, *resolved.exchange_steps, experiment.training.steps})
    apart = max((stop - start for start, stop in itertools.pairwise(edges)), default=1)
    return min(apart, experiment.training.log_every, experiment.evaluate_every)

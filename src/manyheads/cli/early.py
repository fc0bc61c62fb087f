"""Checks that need no PyTorch, so that a mistake is answered at once.

Whoever runs the experiment checks all of it again, with what only its algorithm and its data can tell.
"""

from dataclasses import replace

from manyheads.config.data import DataConfig, SourceConfig
from manyheads.config.experiment import Experiment
from manyheads.config.knobs import check_knobs
from manyheads.engine.cores import number_of_workers
from manyheads.engine.options import EngineOptions


def check_early(experiment: Experiment, options: EngineOptions) -> None:
    """Raise where what a person asked for cannot be run."""
    replace(options, engine=options.engine or "plain")  # with one engine in mind, its options are checked
    options.check_gpu()
    if options.workers is not None:
        number_of_workers(options.workers, len(experiment.groups) or experiment.clients)
    from manyheads.setup.validate import check_schedule

    check_schedule(experiment.training)
    check_knobs(experiment.algorithm)
    from manyheads.graph import with_defaults

    with_defaults(experiment.graph)
    check_data(experiment.data)


def check_data(data: DataConfig) -> None:
    """Raise if a source is unknown, or its files are not there."""
    from manyheads.data.sources import check_source

    check_source(data)
    if isinstance(data.public, SourceConfig):
        check_source(data.public)

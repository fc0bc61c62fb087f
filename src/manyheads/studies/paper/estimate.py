"""Estimates of how long cells take here."""

import contextlib
import time
from dataclasses import replace
from typing import Any

from manyheads.algorithms import make_algorithm
from manyheads.config.experiment import Experiment
from manyheads.engine import ENGINES
from manyheads.engine.base import Window
from manyheads.engine.cores import usable_cores
from manyheads.engine.defaults import local_device
from manyheads.engine.threads import one_thread
from manyheads.setup.build import assemble
from manyheads.studies.paper.cell_worker import free_memory
from manyheads.studies.paper.jobs import Job
from manyheads.training.start import train


def estimated_seconds(job: Job) -> float:
    """Estimate how long a job takes here from a few steps; on a CPU with two clients and small batches."""
    options = job.options
    on_cpu = options.device == "cpu"
    tried, steps = (_smaller(job.experiment), 1) if on_cpu else (job.experiment, 10)
    engine = ENGINES[options.engine](assemble(tried, local_device(options)), options)
    with one_thread(), contextlib.closing(engine):
        engine.exchange(step=0)
        engine.train(Window(0, steps), lambda _: None)
        began = time.perf_counter()
        engine.train(Window(steps, 2 * steps), lambda _: None)
        spent = time.perf_counter() - began
    del engine
    free_memory()
    done = replace(job, experiment=tried.with_values(training={"steps": steps})).work
    return spent * job.work / done / (usable_cores() if on_cpu else 1)


def _smaller(experiment: Experiment) -> Experiment:
    """Return the experiment with two clients (lists keep an entry for each) and small batches."""
    lists = {key: getattr(experiment.model, key)[:2] for key in experiment.model.lists}
    knobs = make_algorithm(experiment.algorithm).knobs_for_little_memory()
    batches = {"batch_size": 8, "public_batch_size": 8}
    return experiment.with_values(clients=2, model=lists, algorithm=knobs, training=batches)


def try_out(job: Job, steps: int) -> float:
    """Take a few steps of a cell, keep nothing, and return how many seconds they took."""
    began = time.perf_counter()
    values: dict[str, Any] = {"training": {"steps": steps, "warmup_steps": 0}, "evaluate": {"every": steps}}
    values["algorithm"] = make_algorithm(job.experiment.algorithm).knobs_for_trial(steps)
    train(job.experiment.with_values(**values), options=job.options)
    return time.perf_counter() - began

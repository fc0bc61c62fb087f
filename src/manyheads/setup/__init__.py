"""From an experiment to clients that are ready to train: resolve, validate, build.

resolve.py         load the data, fill in defaults and check everything: a `ResolvedExperiment` (resolved.py)
validate.py        checks that need the whole experiment
models.py          each different model, made and tried out once
memory_limits.py   does it all fit into memory? Asked before clients are made
build.py           from a `ResolvedExperiment` to an `Ensemble` of clients
"""

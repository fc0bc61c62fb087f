"""From an experiment to clients that are ready to train: resolve, validate, build.

resolve.py       load the data, fill in defaults, and find the whole consistent: a `ResolvedExperiment` (resolved.py)
validate.py      what only the whole experiment can tell
models.py        each different model, made and tried out once
room.py          whether it fits into memory, before any of that is taken
build.py         from a `ResolvedExperiment` to an `Ensemble` of clients
"""

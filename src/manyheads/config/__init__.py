"""The typed experiment: read from TOML, checked, and written back.

experiment.py   the `Experiment` and its sections (data.py: `[data]`)
toml.py         TOML files and `--set`
messages.py     one line for everything that is wrong
as_printed.py   what keys meant before their defaults changed
types.py        kinds of value and of section             device.py   names of devices

Checks here are mostly of one key at a time; what needs several keys or the data: setup/validate.py.
"""

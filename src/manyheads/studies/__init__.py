"""Runs that belong together: the seeds of one experiment (series.py), the same clients trained in several ways
(beside.py), the demo, the frontier, the paper's tables.
"""

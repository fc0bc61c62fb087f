"""Runs that belong together: the seeds of one experiment (series.py), the demo, the frontier, the paper's tables."""

"""The paper's tables and figures: run again, stored, checked against its claims, and drawn.

A reproduction (one file each in tables/) consists of cells, measures, the paper's numbers, and claims. A cell is one
row or entry of a table: one experiment. A scale (digits, cifar100, imagenet; scales.py) is the base experiment that
cells modify. A finished cell leaves one JSON file, found by the hash of its configuration (results.py), with the hash
of the code that decides numbers (code_of_numbers.py, which also lists the versions that differ in speed or form
alone). So tables share cells, and a command runs what is missing (jobs.py decides which stored results are stale;
runner.py: worker processes that take one cell after the other, as many at a time as fill the cores or the GPU). A
claim is a list of bounds on numbers of cells, mostly differences, judged seed by seed; a single seed that is closer to
a bound than seeds usually differ at that scale (`Scale.doubt`) decides nothing. docs/results.md is a pure function of
the stored files, and a test compares the two. `--verify` runs stored cells again and compares every number.
"""

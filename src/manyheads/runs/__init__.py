"""The run folder: what a run leaves, how it is saved, and reading it again.

Events and the summary are types (events.py, summary.py): the same classes write and read them, and refuse what no run
writes. These files have a format number (stored.py); older.py reads those from before there was one. Checkpoints have
a number of their own (manifest.py). A line of `metrics.jsonl` and
`summary.json` grow linearly with the number of clients. What is measured of every pair of clients grows with its
square, so it is in `relations.json`, for the last evaluation only, and where there are many clients only on request
(`evaluate.relations`).

Snapshots are immutable files, written once. A checkpoint is a manifest with checksums (manifest.py, checkpoints.py).
It points at the snapshots, at the clients' states (client/state.py) and at a length of `metrics.jsonl`, and it
replaces the previous one by a rename. Resuming removes what lies beyond it: a half-written file, later lines of
metrics. A finished run keeps no pools. A run stores a hash of the keys in its own `experiment.toml` (but not where
the data lie, nor how often to save) and one of the data, so it survives a later version that adds a key, and data
that were moved.

What is removed is named by a manifest, or by the list that a save writes before it begins (saved_files.py); other
files in a run folder are somebody's own and stay. A new folder is filled under a name that nobody else has and then
renamed, so of two commands with one `--out` the second is refused.
"""

"""What the paper states about its set-up, counted."""

import numpy as np

from manyheads.config.data import PrimaryLabels
from manyheads.data.split import primary_labels
from manyheads.report.split_table import primary_clients


def test_labels_by_number_of_primary_clients() -> None:
    """1000 labels, 8 clients, 250 random labels each: about 100, 270, 310, 210, 110 labels with 0, 1, 2, 3, 4+."""
    counts = []
    for seed in range(20):
        made = primary_labels(PrimaryLabels(assignment="random", per_client=250), 1000, 8, seed)
        by_owners = dict(primary_clients(made, 1000))
        few = [by_owners.get(owners, 0) for owners in range(4)]
        counts.append([*few, 1000 - sum(few)])
        assert all(abs(ours - paper) < 45 for ours, paper in zip(counts[-1], (100, 270, 310, 210, 110), strict=True))
    mean = np.mean(counts, axis=0)
    assert np.abs(mean - (100, 270, 310, 210, 110)).max() < 8

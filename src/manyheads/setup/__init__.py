"""From an experiment to clients that are ready to train."""

"""A model of a run as a plain module, and as files."""

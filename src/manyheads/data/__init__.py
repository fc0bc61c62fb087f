"""Arrays, sources, split, views and batches."""

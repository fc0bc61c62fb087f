"""Studies: runs that belong together."""

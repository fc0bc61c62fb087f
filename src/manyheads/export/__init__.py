"""The models of a run, as plain torch modules and as files."""

"""Ray actors, on this machine or in a cluster."""

"""The loop over windows."""

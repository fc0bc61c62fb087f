"""All that crosses between clients."""

"""All that is measured."""

"""Runs that belong together."""

"""Engines by name: ways to run the same window."""

from manyheads.engine.base import Engine
from manyheads.engine.plain import Plain

ENGINES: dict[str, type[Engine]] = {"plain": Plain}

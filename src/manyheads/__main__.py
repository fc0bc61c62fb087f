"""`python -m manyheads` is the command line."""

from manyheads.cli import main

main()

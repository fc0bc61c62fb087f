"""The contents of relations.json: what was measured of every pair of clients.

It grows with the square of the number of clients, so it has a file of its own, which holds the last evaluation only.
"""

from typing import Self

from pydantic import model_validator

from manyheads.runs.stored import FORMAT, ByHead, Count, Stored, check_shape


class Relations(Stored):
    """The accuracy of every client on the private distribution of every client, and who taught whom."""

    format: Count = FORMAT
    step: Count
    accuracy_on: list[list[ByHead]] | None = None  # clients x heads x owners of the private distribution
    # Counts of public samples, on those where teachers were counted: clients x auxiliary heads x teachers.
    chosen: list[list[list[Count]]] | None = None
    right: list[list[list[Count]]] | None = None  # how often the teacher named the right class, if labels are known

    @model_validator(mode="after")
    def _is_square(self) -> Self:
        for name in ("accuracy_on", "chosen", "right"):
            table = self[name]
            if table is not None and table:
                check_shape(name, table, len(table), len(table[0]), len(table))
        if self.chosen and self.right:
            check_shape("right", self.right, len(self.chosen), len(self.chosen[0]))
        return self

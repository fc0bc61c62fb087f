"""What clients are to each other, pair by pair: the contents of relations.json.

It grows with the square of the number of clients, so it is a file of its own, which holds the last evaluation only.
"""

from typing import Self

from pydantic import model_validator

from manyheads.runs.stored import FORMAT, ByHead, Count, Stored, check_shape


class Relations(Stored):
    """Every client on the private distribution of every client, and who taught whom."""

    format: Count = FORMAT
    step: Count
    accuracy_on: list[list[ByHead]] | None = None  # clients x heads x clients: on whose private distribution
    # Of the samples of the public set on which it was counted who teaches: clients x auxiliary heads x teachers.
    chosen: list[list[list[Count]]] | None = None
    right: list[list[list[Count]]] | None = None  # how often the teacher named the right class, where that is known

    @model_validator(mode="after")
    def _is_square(self) -> Self:
        for name in ("accuracy_on", "chosen", "right"):
            table = self[name]
            if table is not None and table:
                check_shape(name, table, len(table), len(table[0]), len(table))
        if self.chosen and self.right:
            check_shape("right", self.right, len(self.chosen), len(self.chosen[0]))
        return self

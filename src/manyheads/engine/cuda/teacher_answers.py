"""The answers of teachers: tables at fixed addresses."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from manyheads.outputs import Outputs


@dataclass(eq=False)
class TeacherAnswers:
    """The answers of one target to every student: tables at fixed addresses.

    A line holds the answers about a batch or, where each sample asks its own teacher, about one sample.
    """

    lines: int
    dtype: torch.dtype
    probabilities_LBHC: Tensor | None = None
    confidence_LBH: Tensor | None = None
    known_LB: Tensor | None = None  # if something may be withheld
    embedding_LBE: dict[int, Tensor] = field(default_factory=dict)  # by width
    counts_L: dict[int, Tensor] = field(default_factory=dict)  # 1 if the embedding has this width

    def to(self, student: int, capacity: int, samples: int | None = None) -> "TeacherAnswers":
        """Return one student's lines, each about a batch; `samples` of a batch have a line of their own."""
        lines = capacity * (samples or 1)

        def own(table: Tensor) -> Tensor:
            table = table[student * lines : (student + 1) * lines]
            return table if samples is None else table.view(capacity, samples, *table.shape[2:])

        return TeacherAnswers(
            capacity,
            self.dtype,
            None if self.probabilities_LBHC is None else own(self.probabilities_LBHC),
            None if self.confidence_LBH is None else own(self.confidence_LBH),
            None if self.known_LB is None else own(self.known_LB),
            {width: own(table) for width, table in self.embedding_LBE.items()},
            {width: own(table) for width, table in self.counts_L.items()},
        )

    def make_room(self, outputs: Outputs, batch: int) -> None:
        """Make tables for answers like these, if there are none yet."""

        def table(of: Tensor) -> Tensor:
            return torch.zeros(self.lines, batch, *of.shape[1:], dtype=self.dtype, device=of.device)

        if self.probabilities_LBHC is None:
            self.probabilities_LBHC = table(outputs.probabilities_BHC)
        if self.confidence_LBH is None and outputs.confidence_BH is not None:
            self.confidence_LBH = table(outputs.confidence_BH)
        if self.known_LB is None and outputs.known_B is not None:
            self.known_LB = torch.ones(self.lines, batch, dtype=torch.bool, device=outputs.known_B.device)
        width = 0 if outputs.embedding_BE is None else outputs.embedding_BE.shape[-1]
        if outputs.embedding_BE is not None and width not in self.embedding_LBE:
            self.embedding_LBE[width] = table(outputs.embedding_BE)
            self.counts_L[width] = self.embedding_LBE[width].new_zeros(self.lines)

    def put(self, outputs: Outputs, lines: Tensor) -> None:
        """Store the answers about the rows of some lines."""

        def put(of: Tensor, into: Tensor) -> None:
            into.index_copy_(0, lines, of.view(len(lines), -1, *of.shape[1:]).to(into.dtype))

        assert self.probabilities_LBHC is not None
        put(outputs.probabilities_BHC, self.probabilities_LBHC)
        if outputs.confidence_BH is not None and self.confidence_LBH is not None:
            put(outputs.confidence_BH, self.confidence_LBH)
        if self.known_LB is not None:
            known_B = outputs.known_B
            put(torch.ones_like(outputs.probabilities_BHC[:, 0, 0]) if known_B is None else known_B, self.known_LB)
        if outputs.embedding_BE is not None:
            width = outputs.embedding_BE.shape[-1]
            put(outputs.embedding_BE, self.embedding_LBE[width])
            self.counts_L[width].index_fill_(0, lines, 1.0)

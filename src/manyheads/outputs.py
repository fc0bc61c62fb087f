"""What a model says about a batch, and the letters that name the axes of tensors throughout manyheads.

B samples        C classes        E embedding width     H heads, the main one first
K auxiliary heads (H - 1)         J candidates          S steps of a window
N rows of a table                 T classes named in a row (top-k)
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outputs:
    """The answer of a model, own or foreign, to a batch: all that one client ever learns of another."""

    probabilities_BHC: Tensor
    embedding_BE: Tensor | None  # None where it is not sent
    confidence_BH: Tensor | None = None  # where the owner measures it; otherwise it follows from probabilities
    known_B: Tensor | None = None  # where something is said about a sample; None: about all

"""The outputs of a model for a batch, and the letters that name the axes of tensors throughout manyheads.

B samples        C classes        E embedding width     H heads, the main one first
K auxiliary heads (H - 1)         J candidates          S steps of a window
N rows of a table                 T classes named in a row (top-k)
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model, own or foreign, for a batch: all that one client ever learns of another.

    >>> import torch
    >>> outputs = Outputs(torch.tensor([[[0.5, 0.5], [0.75, 0.25]]]), embedding_BE=None)  # 1 sample, 2 heads, 2 classes
    >>> outputs.probabilities_BHC[:, 1].argmax(-1)  # the class that auxiliary head 1 predicts
    tensor([0])
    """

    probabilities_BHC: Tensor
    embedding_BE: Tensor | None  # None: it was not sent
    confidence_BH: Tensor | None = None  # as the owner measured it; None: it follows from probabilities
    known_B: Tensor | None = None  # the samples with a prediction; None: all

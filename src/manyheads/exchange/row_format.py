"""The format of a row in a table of predictions: how many classes, of which heads, in how many bits."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from manyheads.config.types import Positive, Precision, Rest, Section

DTYPES = {"float32": (torch.float32, "<f4"), "float16": (torch.float16, "<f2"), "uint8": (torch.uint8, "u1")}


class RowFormat(Section):
    """The format of a row, on which all clients agree.

    >>> form = RowFormat(classes=10, heads=2, top_k=3, precision="float16", confidence=False)
    >>> form.layout(rows=500, embedding=0)["probabilities"]
    ('<f2', (500, 2, 3))
    """

    classes: Annotated[int, Field(ge=2, le=65_536)]
    heads: Annotated[int, Field(gt=0, le=65_536)]  # the first so many; the last teaches nobody unless `same_level`
    top_k: Positive
    precision: Precision
    confidence: bool  # whether a confidence that the owner measured is sent
    withholds: bool = False  # whether rows may be withheld: named, without a prediction

    @property
    def names_classes(self) -> bool:
        """True unless all probabilities are sent, in the order of the classes: then no class has to be named."""
        return self.top_k < self.classes

    def probabilities(self, p_BHC: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the largest probabilities and their classes, rounded as they will be sent."""
        class_BHT, p_BHT = None, p_BHC[:, : self.heads].float()
        if self.names_classes:
            p_BHT, class_BHT = p_BHT.topk(self.top_k, dim=-1)
        if self.precision == "uint8":
            p_BHT = (p_BHT * 255.0).round()
        return class_BHT, p_BHT.to(DTYPES[self.precision][0])

    def all_probabilities(self, class_BHT: Tensor | None, p_BHT: Tensor, rest: Rest, dtype: torch.dtype) -> Tensor:
        """Return a probability for every class from those that were sent: what a receiver reads."""
        p_BHT = p_BHT.to(dtype)
        if self.precision == "uint8":
            p_BHT = p_BHT / 255.0
        if not self.names_classes and self.precision == "float32":
            return p_BHT  # nothing is missing
        return _all_classes(p_BHT, class_BHT, self.classes, rest)

    def embedding(self, embedding_BE: Tensor) -> Tensor:
        """Return the direction of an embedding, in 8 bits unless probabilities are float32."""
        unit_BE = normalize(embedding_BE.float(), dim=-1)
        if self.precision == "float32":
            return unit_BE
        largest_B1 = unit_BE.abs().amax(-1, keepdim=True).clamp_min(1e-12)
        return (unit_BE / largest_B1 * 127.0).round().to(torch.int8)

    @property
    def sums(self) -> tuple[float, float]:
        """The smallest and the largest possible sum of a head's probabilities.

        The k largest of C hold at least k/C of a sum of 1. Each may be rounded by half a step of its precision, where
        float16 is finest (2^-24 below 2^-14; above, its steps are relative and within the 1e-3).
        """
        rounding = self.top_k * {"float32": 0.0, "float16": 2.0**-25, "uint8": 1.0 / 510.0}[self.precision]
        return (1.0 - 1e-3) * self.top_k / self.classes - rounding, 1.0 + 1e-3 + rounding

    def layout(self, rows: int, embedding: int, withheld: int = 0) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return name, type and shape of each array of a message, in order; rows that are withheld come last."""
        named = (rows + withheld,)
        shape_NHT = (rows, self.heads, self.top_k)
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {"names": ("<u8", named), "views": ("<u2", named)}
        if self.names_classes:
            arrays["classes"] = ("u1" if self.classes <= 256 else "<u2", shape_NHT)
        arrays["probabilities"] = (DTYPES[self.precision][1], shape_NHT)
        if self.confidence:
            arrays["confidence"] = ("<f2", (rows, self.heads))
        if embedding:
            arrays["embedding"] = ("<f4" if self.precision == "float32" else "i1", (rows, embedding))
        return arrays


def _all_classes(p_BHT: Tensor, class_BHT: Tensor | None, classes: int, rest: Rest) -> Tensor:
    """Return probabilities of every class from the few that were sent.

    A class that is not named is at most as likely as the last one that is, whatever rounding did.
    """
    sent, total_BH1 = p_BHT.shape[-1], p_BHT.sum(-1, keepdim=True)
    if class_BHT is None:
        even_BH1, p_BHC = total_BH1.new_zeros(()), p_BHT
    else:
        left_BH1 = (1.0 - total_BH1).clamp_min(0.0) if rest == "spread" else torch.zeros_like(total_BH1)
        even_BH1 = torch.minimum(left_BH1 / (classes - sent), p_BHT[..., -1:])
        p_BHC = even_BH1.expand(*p_BHT.shape[:2], classes).scatter(-1, class_BHT, p_BHT)
    total_BH1 = total_BH1 + even_BH1 * (classes - sent)
    return torch.where(total_BH1 == 0.0, 1.0 / classes, p_BHC / total_BH1)  # NaN stays NaN

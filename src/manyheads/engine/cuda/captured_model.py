"""A client's model as a captured step uses it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from manyheads.client.client import Client
from manyheads.models.client_model import ClientModel
from manyheads.models.norm import in_parts


class CapturedModel:
    """A client's model as a captured step uses it: several batches in one pass, weights in low precision.

    Its parameters are views of the client's flat tensor or, in bfloat16, of a copy that the optimizer keeps up to date;
    BatchNorm stays in float32. Nothing is cast layer by layer, as autocast would.
    """

    def __init__(self, client: Client, low_dtype: torch.dtype | None) -> None:
        state = client.state
        self._state, self.passes, self.training = state, 0, True
        self.external = client.model.external
        self.low = None if low_dtype is None or self.external else torch.empty_like(state.parameters, dtype=low_dtype)
        self.dtype = state.values.dtype if self.low is None else self.low.dtype
        self._autocast = low_dtype if self.external else None
        self.module: ClientModel = client.model if self.external else _empty(client, state.values.device)
        self.shape_HC, self.embedding_width = client.model.shape_HC, client.model.embedding_width
        named = dict(self.module.named_parameters())
        if not self.external:
            keep = {id(p) for m in self.module.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()}
            places: dict[str, Tensor] = named | dict(self.module.named_buffers())
            for slot in state.layout:
                tensor = places[slot.name]
                low = self.low if slot.name in named and id(tensor) not in keep and tensor.requires_grad else None
                flat = state.values if low is None else low
                tensor.data = flat.as_strided(slot.shape, slot.stride, slot.offset)
        known = [named[slot.name] for slot in state.layout if slot.name in named]
        self.parameters = [parameter for parameter in known if parameter.requires_grad]
        self.module.train()

    def refresh(self) -> None:
        """Copy the client's weights again after an average or a checkpoint has changed them."""
        if self.low is not None:
            self.low.copy_(self._state.parameters)

    def forward_batches(
        self, *images: Tensor, pulls: Sequence[float | Tensor] | None = None, main_apart: bool = False
    ) -> list[tuple[Tensor, Tensor]]:
        """Run several batches in one pass; an external model, whose samples may interact, takes a pass for each."""
        self.passes += 0 if self.external else len(images)
        each = list(pulls or [1.0] * len(images))
        if self.external:
            with torch.autocast("cuda", self._autocast, enabled=self._autocast is not None):
                passed = (
                    self.module(batch, pull, main_apart=main_apart) for batch, pull in zip(images, each, strict=True)
                )
                return [self._full(outputs) for outputs in passed]
        sizes = tuple(map(len, images))
        pull: float | Tensor = each[0]
        if any(isinstance(own, Tensor) or own != pull for own in each):
            whole = images[0].new_ones(sum(sizes), 1, dtype=self.dtype)
            pull = torch.cat([part * own for part, own in zip(torch.split(whole, list(sizes)), each, strict=True)])
        with in_parts(self.module, sizes), torch.autocast("cuda", enabled=False):
            batch = torch.cat(images) if len(images) > 1 else images[0]
            logits_BHC, embedding_BE = self._full(self.module(batch, pull, main_apart=main_apart))
        return list(zip(torch.split(logits_BHC, list(sizes)), torch.split(embedding_BE, list(sizes)), strict=True))

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_batches(images)[0]

    def mapped(self, embedding_BE: Tensor, width: int) -> Tensor:
        if width == self.embedding_width:
            return embedding_BE
        return self.module.mapped(embedding_BE.to(self.dtype), width).to(self._state.values.dtype)

    def _full(self, outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return outputs in full precision, in which losses are computed."""
        logits_BHC, embedding_BE = outputs
        return logits_BHC.to(self._state.values.dtype), embedding_BE.to(self._state.values.dtype)


def _empty(client: Client, device: torch.device) -> ClientModel:
    """Return a model of the client's architecture, whose weights will be views of other tensors."""
    return client.make_model().to(device)

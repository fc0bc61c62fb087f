"""A model tried out on a few images before any time is spent on it, and what that shows."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.errors import ModelError
from manyheads.memory import ran_out
from manyheads.models.backbones import has_width
from manyheads.models.client_model import ClientModel, evaluating
from manyheads.models.foreign import ask, refused, shape_text


@dataclass
class Work:
    """What a pass takes: floating-point operations, and numbers that are kept for the pass back, at least."""

    flops: int = 0
    kept: int = 0  # of models of others it is not known


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a client's model before training."""

    backbone: str
    width: int
    embedding_width: int
    parameters: int  # with heads and maps
    flops: int  # of a forward pass, for one image
    kept: int = 0  # numbers of that pass that the pass back needs, at least

    def __str__(self) -> str:
        name = f"{self.backbone}, width {self.width}" if has_width(self.backbone) else self.backbone
        millions = self.flops / 1e6
        work = f"{millions:,.1f}" if millions >= 1.0 else f"{millions:.2g}"
        return f"{name}, {self.parameters:,} parameters, {work} MFLOP per image, embedding {self.embedding_width}"


def try_out(model: ClientModel, images: Tensor, backbone: str, width: int) -> ModelFacts:
    """Ask a model about images as a run will, in evaluation and in training mode; raise where it fails.

    It is used up by that: its BatchNorm statistics have moved.
    """
    _try_evaluation(model, images, backbone)
    work = _try_training(model, images, backbone)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return ModelFacts(
        backbone, width, model.embedding_width, parameters, work.flops // len(images), work.kept // len(images)
    )


def _try_evaluation(model: ClientModel, images: Tensor, backbone: str) -> None:
    asked = model.backbone if model.foreign else lambda batch: model(batch)[1]

    def said() -> Tensor:
        return ask(asked, images.clone(memory_format=torch.contiguous_format), backbone)

    model.eval()
    first_BE = said()
    _check(first_BE, model, backbone, "in evaluation mode")
    if model.foreign and not torch.allclose(first_BE, said(), rtol=1e-3, atol=1e-5):
        raise ModelError(
            backbone,
            "says something else about the same images when asked again in evaluation mode; F.dropout, for one, "
            "needs training=self.training",
        )


def _try_training(model: ClientModel, images: Tensor, backbone: str) -> Work:
    """A pass forward, counted, and one back."""
    model.train()
    before = _places(model)
    try:
        (logits_BHC, embedding_BE), work = (_count_all if model.foreign else _count_layers)(model, images)
        logits_BHC.sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:
        if ran_out(error):
            raise
        raise ModelError(backbone, f"in training mode {refused(images, error)}") from None
    _check(embedding_BE, model, backbone, "in training mode")
    moved = [name for name, place in _places(model).items() if before.get(name) != place]
    if moved:
        name = moved[0].removeprefix("backbone.")
        raise ModelError(backbone, f'makes or replaces "{name}" in a pass; make it in __init__ and change it in place')
    return work


def _check(embedding_BE: Tensor, model: ClientModel, backbone: str, when: str) -> None:
    if embedding_BE.shape[1:] != (model.embedding_width,):
        said = shape_text(embedding_BE.shape)
        raise ModelError(backbone, f"yields {said} {when}, but embeddings of {model.embedding_width} for blank images")
    if not torch.isfinite(embedding_BE).all():
        raise ModelError(backbone, f"yields numbers that are not finite {when}")


def _places(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Where every number lies: a run keeps them in one tensor, and looks nowhere else."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: (id(tensor), tensor.data_ptr()) for name, tensor in named}


def _count_all(model: ClientModel, images: Tensor) -> tuple[tuple[Tensor, Tensor], Work]:
    """What the model says, and the operations that it took, whatever it is made of."""
    # Imported where they are needed: they bring in a compiler, which takes a second.
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # Attention that is fused into one kernel would not be counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        said = model(images)
    return said, Work(counter.get_total_flops())


def _count_layers(model: ClientModel, images: Tensor) -> tuple[tuple[Tensor, Tensor], Work]:
    """The same count for our backbones, in which convolutions and linear layers do all the work."""
    work = Work()

    def count(module: nn.Module, _: Any, said: Tensor) -> None:
        work.flops += 2 * said.numel() * math.prod(module.get_parameter("weight").shape[1:])
        work.kept += said.numel()

    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        return model(images), work
    finally:
        for hook in hooks:
            hook.remove()


def numbers_kept(model: ClientModel, image_shape: tuple[int, int, int]) -> int:
    """How many numbers a pass of one of our models keeps for the pass back, for one image; on the meta device."""
    height, width, channels = image_shape
    with evaluating(model), torch.no_grad():
        return _count_layers(model, torch.empty(1, channels, height, width, device="meta"))[1].kept

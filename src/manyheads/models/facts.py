"""The trial of a model on a few images before any time is spent on it, and what it reveals."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.errors import ModelError
from manyheads.memory import ran_out
from manyheads.models.backbones import has_width
from manyheads.models.client_model import ClientModel, evaluating
from manyheads.models.external import embed, pass_error_text, shape_text


@dataclass
class PassCost:
    """The cost of a forward pass: floating-point operations, and numbers kept for the backward pass (at least)."""

    flops: int = 0
    kept: int = 0  # not known for external backbones


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a client's model that are known before training."""

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
    """Run a model on images in evaluation and in training mode, as a run will; raise if it fails.

    Afterwards the model is used up: its BatchNorm statistics have moved.
    """
    _try_evaluation(model, images, backbone)
    work = _try_training(model, images, backbone)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return ModelFacts(
        backbone, width, model.embedding_width, parameters, work.flops // len(images), work.kept // len(images)
    )


def _try_evaluation(model: ClientModel, images: Tensor, backbone: str) -> None:
    network = model.backbone if model.external else lambda batch: model(batch)[1]

    def embeddings() -> Tensor:
        return embed(network, images.clone(memory_format=torch.contiguous_format), backbone)

    model.eval()
    first_BE = embeddings()
    _check(first_BE, model, backbone, "in evaluation mode")
    if model.external and not torch.allclose(first_BE, embeddings(), rtol=1e-3, atol=1e-5):
        raise ModelError(
            backbone,
            "gives other embeddings when called again with the same images in evaluation mode; F.dropout, for one, "
            "needs training=self.training",
        )


def _try_training(model: ClientModel, images: Tensor, backbone: str) -> PassCost:
    """Run one forward pass, with its cost, and one backward pass."""
    model.train()
    before = _addresses(model)
    try:
        (logits_BHC, embedding_BE), work = (_count_all if model.external else _count_layers)(model, images)
        logits_BHC.sum().backward()  # type: ignore[no-untyped-call]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it may even call sys.exit
        if ran_out(error):
            raise
        raise ModelError(backbone, f"in training mode {pass_error_text(images, error)}") from None
    _check(embedding_BE, model, backbone, "in training mode")
    moved = [name for name, place in _addresses(model).items() if before.get(name) != place]
    if moved:
        name = moved[0].removeprefix("backbone.")
        raise ModelError(backbone, f'makes or replaces "{name}" in a pass; make it in __init__ and change it in place')
    return work


def _check(embedding_BE: Tensor, model: ClientModel, backbone: str, when: str) -> None:
    if embedding_BE.shape[1:] != (model.embedding_width,):
        shape = shape_text(embedding_BE.shape)
        raise ModelError(backbone, f"yields {shape} {when}, but embeddings of {model.embedding_width} for blank images")
    if not torch.isfinite(embedding_BE).all():
        raise ModelError(backbone, f"yields numbers that are not finite {when}")


def _addresses(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the address of every number: a run keeps them in one tensor, and looks nowhere else."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: (id(tensor), tensor.data_ptr()) for name, tensor in named}


def _count_all(model: ClientModel, images: Tensor) -> tuple[tuple[Tensor, Tensor], PassCost]:
    """Return the model's outputs and the number of operations, whatever layers it has."""
    # Imported where they are needed: they bring in a compiler, which takes a second.
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # Attention that is fused into one kernel would not be counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        outputs = model(images)
    return outputs, PassCost(counter.get_total_flops())


def _count_layers(model: ClientModel, images: Tensor) -> tuple[tuple[Tensor, Tensor], PassCost]:
    """Count the same for built-in backbones, where convolutions and linear layers do all the work."""
    work = PassCost()

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        work.flops += 2 * output.numel() * math.prod(module.get_parameter("weight").shape[1:])
        work.kept += output.numel()

    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        return model(images), work
    finally:
        for hook in hooks:
            hook.remove()


def activations_kept(model: ClientModel, image_shape: tuple[int, int, int]) -> int:
    """Return how many numbers a forward pass of one image keeps for the backward pass, on the meta device."""
    height, width, channels = image_shape
    with evaluating(model), torch.no_grad():
        return _count_layers(model, torch.empty(1, channels, height, width, device="meta"))[1].kept

"""A client's model: a backbone and one linear layer that holds the main head and all auxiliary heads."""

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from manyheads.config.experiment import ModelConfig
from manyheads.config.messages import nearest
from manyheads.data.batches import Pixels
from manyheads.data.views import model_input
from manyheads.errors import ConfigurationError, ModelError
from manyheads.imports import Trust
from manyheads.memory import check_memory
from manyheads.models.backbones import BACKBONES
from manyheads.models.dropout import seeded
from manyheads.models.external import ImageShape, embedding_width, is_external, make_external, pass_error_text
from manyheads.models.weights import load_weights

CHUNK = 512  # samples of a pass that is not training


class ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor.

    >>> x = torch.ones(1, requires_grad=True)
    >>> torch.autograd.grad(ScaledGradient.apply(x, 0.25) * 8.0, x)
    (tensor([2.]),)
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, factor: float | Tensor) -> Tensor:
        ctx.factor = factor
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class ClientModel(nn.Module):
    """A backbone and its heads: head 0 is the main head, head k the k-th auxiliary head.

    The embedding is the mean of the backbone's feature map over its positions or, for an external backbone, its output.
    Heads see the embedding or, if the number of `positions` is given, the whole feature map.
    """

    def __init__(
        self,
        backbone: nn.Module,
        embedding_width: int,
        heads: int,
        classes: int,
        foreign_widths: Sequence[int] = (),
        *,
        external: bool = False,
        positions: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.external = external  # nothing is known of how it draws and what it relies on
        self.embedding_width = embedding_width
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.positions = positions
        self.heads = nn.Linear(embedding_width * (positions or 1), heads * classes)
        self.shape_HC = (heads, classes)
        # To compare the own embedding with one of another width: learnt by the student, from its own side. A map of
        # the foreign embedding could make everything equal and teach nothing.
        self.maps = nn.ModuleDict(
            {str(width): nn.Linear(embedding_width, width, bias=False) for width in foreign_widths}
        )

    def forward(self, images: Tensor, pull: float | Tensor = 1.0, *, main_apart: bool = False) -> tuple[Tensor, Tensor]:
        """Return logits (B x H x C) and embedding (B x E).

        `pull` multiplies the gradient that heads send into the backbone: a number, or one for each sample (B x 1). With
        `main_apart` that of the main head stays as it is.
        """
        if self.external:  # a copy in the order that most code expects, into which it may write
            images = images.clone(memory_format=torch.contiguous_format)
        features = self.backbone(images)  # B x E x height x width; external: B x E
        embedding_BE = features if self.external else self.mean(features).flatten(1)
        # Position by position, which is the memory order: nothing is copied.
        seen = embedding_BE if self.positions is None else features.permute(0, 2, 3, 1).flatten(1)
        pulled = seen
        if isinstance(pull, Tensor) or pull != 1.0:
            pulled = ScaledGradient.apply(seen, pull)  # type: ignore[no-untyped-call]
        if not main_apart:
            return self.heads(pulled).unflatten(1, self.shape_HC), embedding_BE
        classes, weight, bias = self.shape_HC[1], self.heads.weight, self.heads.bias
        main = linear(seen, weight[:classes], bias[:classes])
        auxiliary = linear(pulled, weight[classes:], bias[classes:])
        return torch.cat([main, auxiliary], 1).view(-1, *self.shape_HC), embedding_BE

    def forward_batches(
        self, *images: Tensor, pulls: Sequence[float | Tensor] | None = None, main_apart: bool = False
    ) -> list[tuple[Tensor, Tensor]]:
        """Return logits and embeddings of several batches, each with its own BatchNorm statistics and `pull`."""
        each = zip(images, pulls or [1.0] * len(images), strict=True)
        return [self(batch, pull, main_apart=main_apart) for batch, pull in each]

    def mapped(self, embedding_BE: Tensor, width: int) -> Tensor:
        """Map the client's embedding to another width; return it as it is if the width is the same."""
        return embedding_BE if width == self.embedding_width else self.maps[str(width)](embedding_BE)


def make_model(
    config: ModelConfig,
    *,
    image_shape: ImageShape,
    heads: int,
    classes: int,
    foreign_widths: Sequence[int] = (),
    rng: np.random.Generator | None = None,
    trust: Trust | None = None,
    most: int | None = None,
) -> ClientModel:
    """Return the model that `[model]` describes for one client.

    With `rng` it has first weights: drawn from the generator, or the backbone's from `model.weights`. Without `rng` a
    checkpoint has to fill in its numbers. Code that the model names is imported as far as `trust` allows; by default
    not at all. A built-in model that would hold more than `most` numbers is not made.

    >>> config = ModelConfig(backbone="cnn", width=8)
    >>> model = make_model(config, image_shape=(8, 8, 1), heads=4, classes=10, rng=np.random.default_rng(0))
    >>> [tuple(output.shape) for output in model(torch.zeros(2, 1, 8, 8))]  # logits B x H x C, embedding B x E
    [(2, 4, 10), (2, 32)]
    """
    assert isinstance(config.backbone, str), "of one client"
    if is_external(config.backbone):
        model = _external_model(config, image_shape, heads, classes, foreign_widths, rng, trust or Trust())
    else:
        model = _own_model(config, image_shape, heads, classes, foreign_widths, most)
    if rng is not None:
        initialise(model, rng)
        if config.weights:
            assert isinstance(config.weights, str), "of one client"
            load_weights(model.backbone, config.weights, config.backbone)
    return model


def _own_model(
    config: ModelConfig,
    image_shape: ImageShape,
    heads: int,
    classes: int,
    foreign_widths: Sequence[int],
    most: int | None,
) -> ClientModel:
    model = meta_model(config, image_shape, heads, classes, foreign_widths)
    if most is not None and sum(tensor.numel() for tensor in model.state_dict().values()) > most:
        raise ModelError(str(config.backbone), "does not fit: it holds more numbers than there are to fill it with")
    check_memory(4 * sum(parameter.numel() for parameter in model.parameters()), "its weights")
    # channels_last: the order in which images are stored, and the faster one for convolutions.
    return _allocated(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def meta_model(
    config: ModelConfig, image_shape: ImageShape, heads: int, classes: int, foreign_widths: Sequence[int] = ()
) -> ClientModel:
    """Return a built-in model on the meta device: shapes, which take no memory."""
    assert isinstance(config.backbone, str), "of one client"
    assert isinstance(config.width, int), "of one client"
    if config.backbone not in BACKBONES:
        raise ConfigurationError(
            f'model.backbone = "{config.backbone}": unknown backbone; {nearest(config.backbone, BACKBONES)}; '
            'one of timm\'s is named "timm:NAME", your own "package.module:factory"'
        )
    # On the meta device the constructors draw nothing: their draws would come from the global generator.
    with torch.device("meta"):
        backbone = BACKBONES[config.backbone](image_shape[2], config.width, config.stem)
        whole = config.heads_see == "feature_map"
        positions = _positions(backbone, config.backbone, image_shape) if whole else None
        return ClientModel(backbone, backbone.embedding_width, heads, classes, foreign_widths, positions=positions)


def _allocated(model: ClientModel) -> ClientModel:
    """Give a model memory for its numbers on the CPU. `to_empty` does the same, but imports SymPy, which takes a
    second.
    """
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))
    return model


def _positions(backbone: nn.Module, name: str, image_shape: ImageShape) -> int:
    """Return the number of positions in the feature map of an image; nothing is computed."""
    height, width, channels = image_shape
    with evaluating(backbone):
        blank = torch.empty(1, channels, height, width)
        try:
            feature_map = backbone(blank)
        except RuntimeError as error:
            raise ModelError(name, pass_error_text(blank, error)) from None
    return math.prod(feature_map.shape[2:])


def _external_model(
    config: ModelConfig,
    image_shape: ImageShape,
    heads: int,
    classes: int,
    foreign_widths: Sequence[int],
    rng: np.random.Generator | None,
    trust: Trust,
) -> ClientModel:
    """Return a model with an external backbone, which draws its own first weights from torch's generator."""
    with seeded(rng or np.random.default_rng(0)):
        backbone = make_external(config, image_shape, trust)
        width = embedding_width(backbone, str(config.backbone), image_shape)
    with torch.device("meta"):
        model = ClientModel(nn.Identity(), width, heads, classes, foreign_widths, external=True)
    model = _allocated(model)
    model.backbone = backbone
    return model


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode, and afterwards back into the mode that it had."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def embeddings(model: ClientModel, pixels: Pixels, samples: Tensor) -> Tensor:
    """Return the embeddings of stored images, without augmentation, in evaluation mode."""
    like = next(model.parameters())
    with evaluating(model):
        chunks = torch.split(samples, CHUNK)
        return torch.cat([model(model_input(pixels[chunk], like.dtype))[1] for chunk in chunks])


@torch.no_grad()
def initialise(model: ClientModel, rng: np.random.Generator) -> None:
    """Draw first weights from a named generator: He-normal convolutions, uniform linear layers (PyTorch's).

    An external backbone has drawn its own.
    """
    parts = (model.heads, model.maps) if model.external else (model,)
    for module in itertools.chain.from_iterable(part.modules() for part in parts):
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * math.prod(module.kernel_size) // module.groups
            draw = rng.standard_normal(tuple(module.weight.shape), dtype=np.float32)
            module.weight.copy_(torch.from_numpy(draw * np.float32(math.sqrt(2.0 / fan_out))))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = 1.0 / math.sqrt(module.in_features)
            for parameter in (module.weight, module.bias) if module.bias is not None else (module.weight,):
                draw = rng.random(tuple(parameter.shape), dtype=np.float32)
                parameter.copy_(torch.from_numpy((2.0 * draw - 1.0) * np.float32(bound)))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
            module.reset_running_stats()

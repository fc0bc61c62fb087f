"""External backbones: any of timm's (`timm:NAME`), and the user's own (`package.module:factory`).

Their own constructors build them on the CPU and draw from torch's generator, always inside `seeded`.
"""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from manyheads.config.experiment import ModelConfig
from manyheads.errors import ConfigurationError, ModelError
from manyheads.imports import Trust, describe_error, import_library, import_named
from manyheads.memory import ran_out
from manyheads.models.dropout import replace_dropout

ImageShape = tuple[int, int, int]  # height, width, channels
FACTORY_ARGUMENTS = ("channels", "width", "image_shape")  # what a factory may ask for
FACTORY = "a function or class that returns a new nn.Module at each call"
TAKEN = "_taken_by_manyheads"


def is_external(backbone: str) -> bool:
    return ":" in backbone


def is_timm(backbone: str) -> bool:
    return backbone.startswith("timm:")


def make_external(config: ModelConfig, image_shape: ImageShape, trust: Trust) -> nn.Module:
    """Return the module that `model.backbone` names."""
    name = str(config.backbone)
    made = _timm(name, image_shape) if is_timm(name) else _own(name, config, image_shape, trust)
    # One type for all: the numbers of a model are in one tensor.
    backbone = made.to(device="cpu", dtype=torch.float32)
    replace_dropout(backbone)
    return backbone


def embedding_width(backbone: nn.Module, name: str, image_shape: ImageShape) -> int:
    """Return the width of the embedding, seen on two blank images; this pass also makes lazy parameters."""
    height, width, channels = image_shape
    backbone.eval()
    embedding_BE = embed(backbone, torch.zeros(2, channels, height, width), name)
    backbone.train()
    for parameter, value in backbone.named_parameters():
        if is_lazy(value):
            raise ModelError(name, f'the parameter "{parameter}" has no size after a first pass; make it in __init__')
    return embedding_BE.shape[1]


@torch.no_grad()
def embed(backbone: Callable[[Tensor], Any], images: Tensor, name: str) -> Tensor:
    """Return the embeddings of images, or raise if that is not what the backbone returns."""
    try:
        output = backbone(images)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it may even call sys.exit
        if ran_out(error):
            raise
        raise ModelError(name, pass_error_text(images, error)) from None
    fits = isinstance(output, Tensor) and output.dim() == 2 and len(output) == len(images) and output.numel() > 0
    if fits and output.is_floating_point():
        vectors: Tensor = output
        return vectors
    shown = shape_text(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
    if isinstance(output, Tensor) and not output.is_floating_point():
        shown += f" of {str(output.dtype).removeprefix('torch.')}"
    feature_map = isinstance(output, Tensor) and output.dim() == 4
    fix = "; end with nn.AdaptiveAvgPool2d(1) and nn.Flatten()" if feature_map else ""
    raise ModelError(name, f"yields {shown} for {len(images)} images; needed: one vector per image{fix}")


def pass_error_text(images: Tensor, error: BaseException) -> str:
    """Describe in one line why a pass failed."""
    _, channels, height, width = images.shape
    return f"cannot take images of {height} x {width} x {channels} (height x width x channels): {describe_error(error)}"


def shape_text(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _timm(name: str, image_shape: ImageShape) -> nn.Module:
    """Return a timm model with pooled features (`num_classes=0`), for this image size if it depends on one.

    Only timm's own models are made: `create_model` alone would also fetch `hf-hub:somebody/anything`.
    """
    model = name.removeprefix("timm:")
    try:
        timm: Any = import_library("timm")
    except Exception as error:  # a broken torchvision shows here, in many ways
        raise ConfigurationError(
            f'model.backbone = "{name}": timm cannot be imported ({describe_error(error)}); '
            "pip install 'manyheads[timm]'"
        ) from None
    if not timm.is_model(model):
        close = difflib.get_close_matches(model, timm.list_models(), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "timm.list_models() names them all"
        raise ConfigurationError(f'model.backbone = "{name}": timm has no such model; {hint}')
    height, width, channels = image_shape

    def create(**options: Any) -> Any:
        return timm.create_model(model, pretrained=False, num_classes=0, in_chans=channels, **options)

    try:
        state = torch.get_rng_state()
        try:
            made = create(img_size=(height, width))
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            torch.set_rng_state(state)  # first weights do not depend on the attempt
            made = create()
    except Exception as error:
        raise ConfigurationError(f'model.backbone = "{name}": cannot be made: {describe_error(error)}') from None
    return _module(name, made)


def _own(name: str, config: ModelConfig, image_shape: ImageShape, trust: Trust) -> nn.Module:
    """Return what the user's factory returns; it is called with the arguments of FACTORY_ARGUMENTS that it has."""
    factory: Callable[..., Any] = import_named(name, "model.backbone", _is_factory, FACTORY, trust)
    offered = {"channels": image_shape[2], "width": config.width, "image_shape": image_shape}
    named = inspect.signature(factory).parameters
    if inspect.isfunction(factory) and named and not named.keys() & set(FACTORY_ARGUMENTS):
        raise ConfigurationError(
            f'model.backbone = "{name}": is a function of {", ".join(named)}; one that makes a model takes nothing, or '
            f"one of {', '.join(FACTORY_ARGUMENTS)} (docs/data.md)"
        )
    for parameter in named.values():
        required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if required and (parameter.name not in FACTORY_ARGUMENTS or parameter.kind is parameter.POSITIONAL_ONLY):
            raise ConfigurationError(
                f'model.backbone = "{name}": needs the argument "{parameter.name}"; '
                f"offered are {', '.join(FACTORY_ARGUMENTS)}"
            )
    try:
        made = factory(**{key: value for key, value in offered.items() if key in named})
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it may even call sys.exit
        raise ConfigurationError(f'model.backbone = "{name}": raised {describe_error(error)}') from None
    return _module(name, made)


def _is_factory(found: Any) -> bool:
    """Tell whether this is made to be called for a model: a plain function, a class of modules, or a partial of one."""
    while isinstance(found, functools.partial):
        found = found.func
    return inspect.isfunction(found) or (isinstance(found, type) and issubclass(found, nn.Module))


def _module(name: str, made: Any) -> nn.Module:
    """Return the module if nobody has it yet: two clients that share one would train one model."""
    if not isinstance(made, nn.Module):
        raise ConfigurationError(f'model.backbone = "{name}": returns a {type(made).__name__}; needed: an nn.Module')
    for part in made.modules():
        if getattr(part, TAKEN, None) == id(part):
            raise ConfigurationError(
                f'model.backbone = "{name}": returns a {type(part).__name__} that it returned before; make a new one '
                "at each call"
            )
    for part in made.modules():
        setattr(part, TAKEN, id(part))  # a copy of it is new: its id is another
    return made

"""Trying out each different model of an experiment."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch

from manyheads.algorithms.base import Algorithm
from manyheads.config.experiment import Experiment, ModelConfig
from manyheads.data.arrays import Dataset
from manyheads.data.views import model_input
from manyheads.errors import ConfigurationError, ModelError
from manyheads.imports import Trust
from manyheads.memory import check_memory, machine_memory
from manyheads.models.backbones import BACKBONES
from manyheads.models.client_model import make_model, meta_model
from manyheads.models.dropout import seeded
from manyheads.models.external import ImageShape, is_external
from manyheads.models.facts import ModelFacts, activations_kept, try_out
from manyheads.seeds import generator
from manyheads.setup.resolved import heads_of


def try_models(
    experiment: Experiment, dataset: Dataset, algorithm: Algorithm, *, pretrained: bool, trust: Trust
) -> tuple[ModelFacts, ...]:
    """Return the facts about each client's model. Each different model is made once and run on two images."""
    for key, given in experiment.model.lists.items():
        if given != experiment.clients:
            raise ConfigurationError(
                f"model.{key}: a list of {given} for clients = {experiment.clients}; give one value, or one per client"
            )
    heads, tried = heads_of(experiment, algorithm), dict[ModelConfig, ModelFacts]()
    configs = [experiment.model.for_client(client) for client in range(experiment.clients)]
    for client, config in enumerate(configs):
        if config not in tried:
            shown = config if pretrained else config.model_copy(update={"weights": None})
            tried[config] = _tried(shown, dataset, heads, client, generator(experiment.seed, "weights", client), trust)
    found = [tried[config] for config in configs]
    widths = {facts.embedding_width for facts in found} if algorithm.compares_embeddings else set()
    return tuple(
        # The maps to the embeddings of other clients count, too.
        replace(own, parameters=own.parameters + own.embedding_width * sum(widths - {own.embedding_width}))
        for own in found
    )


def _tried(
    config: ModelConfig, dataset: Dataset, heads: int, client: int, rng: np.random.Generator, trust: Trust
) -> ModelFacts:
    """Return the facts about one client's model after a pass of two images."""
    backbone, width = str(config.backbone), config.width
    assert isinstance(width, int), "of one client"
    images = model_input(torch.from_numpy(dataset.train.images[dataset.train.used[[0, -1]]]), torch.float32)
    try:
        shape, classes = dataset.image_shape, dataset.classes
        _check_pass(config, shape, heads, classes)
        model = make_model(config, image_shape=shape, heads=heads, classes=classes, rng=rng, trust=trust)
        numbers = sum(parameter.numel() for parameter in model.parameters())
        check_memory(12 * numbers, "its weights, gradients and momentum")
        with seeded(rng) if model.external else nullcontext():
            return try_out(model, images, backbone, width)
    except ModelError as error:
        raise ConfigurationError(f"client {client} ({backbone}): {error.problem}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"client {client}: {error}" if is_external(backbone) else str(error)) from None
    except (RuntimeError, MemoryError) as error:
        raise ConfigurationError(_too_large(config, dataset, error)) from None


def _check_pass(config: ModelConfig, image_shape: ImageShape, heads: int, classes: int) -> None:
    """Raise a MemoryError if one of our models does not fit into memory even for a pass of two images."""
    backbone, width = config.backbone, config.width
    assert isinstance(width, int), "of one client"
    at_most = 8 * (100 * width + 400) * image_shape[0] * image_shape[1]  # for any of our models
    if backbone in BACKBONES and at_most > machine_memory():  # counting takes seconds: torch imports a compiler for it
        model = meta_model(config, image_shape, heads, classes)
        check_memory(8 * activations_kept(model, image_shape), "a pass of two images")


def _too_large(config: ModelConfig, dataset: Dataset, error: Exception) -> str:
    height, wide, _ = dataset.image_shape
    keys = f"model.width = {config.width}, model.auxiliary_heads = {config.auxiliary_heads}"
    if config.heads_see == "feature_map" and not is_external(str(config.backbone)):
        keys += ', model.heads_see = "feature_map"'
    reason = f" ({error})" if isinstance(error, MemoryError) and str(error) else ""
    return f"{keys}: such a {config.backbone} for images of {height} x {wide} does not fit into memory{reason}"

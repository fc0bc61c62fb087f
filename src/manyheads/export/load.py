"""Loading the model of a client from a run folder or an export."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from manyheads.client.state import OWN_STATISTICS
from manyheads.errors import ConfigurationError, ModelError, RunError
from manyheads.evaluation.head_choice import adds_prior, choose_head
from manyheads.exchange.weights import checkpoint
from manyheads.export.card import describe
from manyheads.export.description import DESCRIPTION, WEIGHTS, ModelDescription, description_of, read_description
from manyheads.imports import Trust
from manyheads.models.classifier import Classifier
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.flat import FlatState
from manyheads.provenance import recorded_trust
from manyheads.runs.manifest import read_manifest
from manyheads.runs.read import client_number, read_summary
from manyheads.runs.tensors import check_finite, check_fits, read_client_values, read_tensors
from manyheads.runs.trust import trust_in_run


def load_model(
    path: str | Path,
    client: int | str | None = None,
    head: int | None = None,
    task: str = "shared",
    *,
    trust_code: bool = False,
) -> Classifier:
    """Load the model of a client from a finished run or from an export, ready to classify.

    Args:
        path: a run folder, or the folder of an exported model.
        client: number or name of the client; the first one by default.
        head: number of the head. By default the one chosen on validation data for `task`; without a validation part,
            the main head for the private task and the last head for the shared one.
        task: "shared" or "private".
        trust_code: import the code that the folder names, even if you did not make that folder on this machine.

    >>> import tempfile, torch
    >>> from manyheads import Experiment, load_model, train
    >>> data, training = {"source": "digits"}, {"steps": 1, "warmup_steps": 0}
    >>> experiment = Experiment(clients=2, data=data, model={"width": 4}, training=training)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(experiment, f"{folder}/run")
    ...     classify = load_model(f"{folder}/run", client=1)
    >>> classify(torch.zeros(5, 8, 8, 1, dtype=torch.uint8)).shape
    torch.Size([5, 10])
    """
    folder, number = Path(path), None
    if os.path.lexists(folder / DESCRIPTION):
        described, asks_for = read_description(folder)
        if client is not None and client not in (described.client, described.name):
            raise ConfigurationError(f"client = {client}: {folder} holds the model of {described.name} only")
        trust = recorded_trust(folder, asks_for, trust_code=trust_code)
    else:
        number = client_number(folder, 0 if client is None else client)
        described = description_of(describe(folder, number), folder)
        trust = trust_in_run(folder, trust_code=trust_code)
    chosen = choose_head(head, task, described.heads, described.deploy)
    if described.task not in (None, task):
        raise ConfigurationError(f'task = "{task}": {folder} was exported for the {described.task} task only')
    prior = described.log_prior if adds_prior(head, task, described.deploy) else None
    if number is None:
        model = _exported(folder, described, trust, own_task=prior is not None)
    else:
        model = model_of_run(folder, number, described, trust, own_task=prior is not None)
    height, width, channels = described.image_shape
    return Classifier(
        model, chosen, described.classes, (height, width, channels), None if prior is None else torch.tensor(prior)
    )


def model_of_run(
    folder: Path, number: int, described: ModelDescription, trust: Trust, *, own_task: bool = False
) -> ClientModel:
    """Return the model of a client of a finished run that fits this description; for its own task if asked."""
    manifest = read_manifest(folder, ended=True)
    tensors = read_client_values(folder, manifest, number)
    model = _model(folder, described, trust, tensors, read_summary(folder).clients[number].maps)
    state = FlatState(model, trainable=False)
    check_fits(tensors, checkpoint(state), folder)
    state.load(tensors["values"], {name: tensors[f"integer {name}"] for name in state.integers})
    if own_task and OWN_STATISTICS in tensors:
        own = {OWN_STATISTICS: state.buffers}
        check_fits(tensors, own, folder)
        check_finite({OWN_STATISTICS: tensors[OWN_STATISTICS]}, folder)
        state.buffers.copy_(tensors[OWN_STATISTICS])
    return model


def _exported(folder: Path, described: ModelDescription, trust: Trust, *, own_task: bool) -> ClientModel:
    place, prefix = folder / WEIGHTS, f"{OWN_STATISTICS} "
    found = read_tensors(place, described.sha256, follow=True)
    own = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    tensors = {name: tensor for name, tensor in found.items() if not name.startswith(prefix)}
    model = _model(folder, described, trust, tensors)
    expected = model.state_dict()
    buffers = dict(model.named_buffers(remove_duplicate=False))
    statistics = {name: expected[name] for name in own.keys() & buffers.keys() & expected.keys()}
    check_fits(own, statistics, place)
    if stray := sorted(own.keys() - statistics.keys()):
        raise RunError(f'{place}: holds "{stray[0]}", which its model does not have; export the model again')
    check_fits(tensors, expected, place)
    if other := sorted(tensors.keys() - expected.keys()):
        raise RunError(f'{place}: holds "{other[0]}", which its model does not have; export the model again')
    check_finite(found, place)
    model.load_state_dict(tensors | (own if own_task else {}))
    return model


def _model(
    folder: Path,
    described: ModelDescription,
    trust: Trust,
    tensors: Mapping[str, Tensor],
    foreign_widths: Sequence[int] = (),
) -> ClientModel:
    """Make the model that these tensors are to fill; one that is larger than they are is refused before it is made."""
    height, width, channels = described.image_shape
    try:
        return make_model(
            described.model.model_copy(update={"weights": None}),  # the weights are in the folder
            image_shape=(height, width, channels),
            heads=described.heads,
            classes=len(described.classes),
            foreign_widths=foreign_widths,
            trust=trust,
            most=sum(tensor.numel() for tensor in tensors.values()),
        )
    except ModelError as error:
        raise RunError(f"{folder}: {error}") from None
    except (RuntimeError, MemoryError, TypeError, OverflowError):
        raise RunError(f"{folder}: such a {described.model.backbone} does not fit into memory") from None

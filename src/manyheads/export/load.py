"""Loading the model of a client, from a run folder or from an export."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.config.experiment import ModelConfig
from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError
from manyheads.evaluation.deploy import choose_head
from manyheads.export.card import describe
from manyheads.files import digest
from manyheads.imports import Trust
from manyheads.made_here import trust_in
from manyheads.models.classifier import Classifier
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.flat import FlatState
from manyheads.runs.code import trust_in_run
from manyheads.runs.read import read_summary
from manyheads.runs.tensors import read_client_values, read_tensors


def load_model(
    path: str | Path,
    client: int | str | None = None,
    head: int | None = None,
    task: str = "shared",
    *,
    trust_code: bool = False,
) -> Classifier:
    """The model of a client of a finished run (the first, unless told), or of an exported folder, ready to classify.

    Without `head`, the one that was chosen on validation data for `task`; without a validation part, the main head
    for the private task and the last head for the shared one. Code that the folder names is imported where you made
    that folder here, or with `trust_code`.
    """
    folder = Path(path)
    if (folder / "model.json").is_file():
        card, model = _exported(folder, client, trust_code)
    else:
        number = client_number(folder, client or 0)
        card = describe(folder, number)
        model = model_of_run(folder, number, card, trust_in_run(folder, said=trust_code))
    chosen = choose_head(head, task, card["heads"], card["deploy"])
    height, width, channels = card["image_shape"]
    return Classifier(model, chosen, card["classes"], (height, width, channels))


def model_of_run(folder: Path, number: int, card: dict[str, Any], trust: Trust) -> ClientModel:
    """The model of a client of a finished run, which has this card."""
    tensors, _ = read_client_values(folder, number)
    model = _model(card, trust, read_summary(folder)["clients"][number]["maps"])
    state = FlatState(model, trainable=False)
    integers = {name: tensors[f"integer {name}"] for name in state.integers}
    state.load(tensors["values"], integers)
    return model


def _exported(folder: Path, client: int | str | None, trust_code: bool) -> tuple[dict[str, Any], ClientModel]:
    """An exported model, and its card."""
    card = _read_card(folder)
    if client is not None and client not in (card["client"], card["name"]):
        raise ConfigurationError(f"client = {client}: {folder} holds the model of {card['name']} only")
    tensors = read_tensors(folder / "model.safetensors", card["sha256"])
    model = _model(card, trust_in(folder, digest((folder / "model.json").read_bytes()), said=trust_code))
    model.load_state_dict(tensors)
    return card, model


def client_number(folder: Path, client: int | str) -> int:
    """Of a client of a finished run, which may be named."""
    names = [own["name"] for own in read_summary(folder)["clients"]]
    if isinstance(client, str):
        if client not in names:
            raise ConfigurationError(f'client = "{client}": not in this run; {nearest(client, names)}')
        return names.index(client)
    if not 0 <= client < len(names):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(names) - 1}")
    return client


def _model(card: dict[str, Any], trust: Trust, foreign_widths: Sequence[int] = ()) -> ClientModel:
    return make_model(
        ModelConfig(**card["model"]),
        image_shape=tuple(card["image_shape"]),
        heads=card["heads"],
        classes=len(card["classes"]),
        foreign_widths=foreign_widths,
        trust=trust,
    )


def _read_card(folder: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((folder / "model.json").read_text())
        if not {"client", "model", "classes", "heads", "image_shape", "deploy", "sha256"} <= card.keys():
            raise ValueError
    except (OSError, ValueError, AttributeError):
        raise RunError(f"{folder / 'model.json'}: not the description of an exported model") from None
    return card

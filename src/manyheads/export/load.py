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
from manyheads.models.classifier import Classifier
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.flat import FlatState
from manyheads.runs.read import read_summary
from manyheads.runs.tensors import read_client_values, read_tensors


def load_model(
    path: str | Path, client: int | str | None = None, head: int | None = None, task: str = "shared"
) -> Classifier:
    """The model of a client of a finished run (the first, unless told), or of an exported folder, ready to classify.

    Without `head`, the one that was chosen on validation data for `task`; without a validation part, the main head
    for the private task and the last head for the shared one.
    """
    folder = Path(path)
    if (folder / "model.json").is_file():
        card = _read_card(folder)
        if client is not None and client not in (card["client"], card["name"]):
            raise ConfigurationError(f"client = {client}: {folder} holds the model of {card['name']} only")
        model = _model(card)
        tensors = read_tensors(folder / "model.safetensors", card["sha256"])
        model.load_state_dict(tensors)
    else:
        number = client_number(folder, client or 0)
        card = describe(folder, number)
        model = _model(card, read_summary(folder)["clients"][number]["maps"])
        tensors, _ = read_client_values(folder, number)
        state = FlatState(model, trainable=False)
        integers = {name: tensors[f"integer {name}"] for name in state.integers}
        state.load(tensors["values"], integers)
    chosen = choose_head(head, task, card["heads"], card["deploy"])
    height, width, channels = card["image_shape"]
    return Classifier(model, chosen, card["classes"], (height, width, channels))


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


def _model(card: dict[str, Any], foreign_widths: Sequence[int] = ()) -> ClientModel:
    return make_model(
        ModelConfig(**card["model"]),
        image_shape=tuple(card["image_shape"]),
        heads=card["heads"],
        classes=len(card["classes"]),
        foreign_widths=foreign_widths,
    )


def _read_card(folder: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((folder / "model.json").read_text())
        if not {"client", "model", "classes", "heads", "image_shape", "deploy", "sha256"} <= card.keys():
            raise ValueError
    except (OSError, ValueError, AttributeError):
        raise RunError(f"{folder / 'model.json'}: not the description of an exported model") from None
    return card

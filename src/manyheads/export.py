"""A model of a run as a plain `torch.nn.Module`, and as files that can be handed on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from manyheads.classifier import Classifier, choose_head
from manyheads.errors import ConfigurationError, RunError
from manyheads.experiment import ModelConfig, nearest
from manyheads.files import digest, write_whole
from manyheads.models.backbones import has_width
from manyheads.models.client_model import ClientModel, make_model
from manyheads.models.flat import FlatState
from manyheads.runs import (
    check_free,
    read_client_values,
    read_experiment,
    read_summary,
    read_tensors,
)


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


def describe(folder: Path, client: int) -> dict[str, Any]:
    """Everything a user of one client's model has to know."""
    experiment, summary = read_experiment(folder), read_summary(folder)
    own = summary["clients"][client]
    return {
        "name": own["name"],
        "client": client,
        "algorithm": summary["algorithm"],
        "data": summary["data"],
        "model": experiment.model.of(client).model_dump(exclude={"weights"}),  # a path of this machine
        "classes": summary["classes"],
        "image_shape": summary["image_shape"],
        "heads": len(own["shared_accuracy"]),
        "samples": own["samples"],
        "primary_labels": own["primary_labels"],
        "private_accuracy": own["private_accuracy"],
        "shared_accuracy": own["shared_accuracy"],
        "deploy": own["deploy"],
        "steps": summary["steps"],
        "seed": summary["seed"],
        "version": summary["version"],
    }


def export(folder: Path, client: int, out: Path) -> dict[str, Any]:
    """Write model.safetensors, model.json and a model card (README.md) into a new folder."""
    check_free(out)
    card = describe(folder, client)
    classifier = load_model(folder, client)
    named = classifier.model.state_dict().items()
    # Maps to other clients' embeddings are of no use to whoever classifies. Copies, because weights may be tied.
    whole = torch.contiguous_format
    tensors = {name: tensor.clone(memory_format=whole) for name, tensor in named if not name.startswith("maps.")}
    content = safetensors.torch.save(tensors)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "model.safetensors", content)
    card["sha256"] = digest(content)
    write_whole(out / "README.md", card_text(card).encode())
    write_whole(out / "model.json", json.dumps(card, indent=1).encode())  # last: a folder with it is whole
    return card


def card_text(card: dict[str, Any]) -> str:
    """The model card."""
    height, width, channels = card["image_shape"]
    names = card["classes"]
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    primary = ", ".join(names[label] for label in card["primary_labels"]) or "none"
    rows = "\n".join(
        f"| {head} | {'main' if head == 0 else f'auxiliary {head}'} | {100 * private:.1f} % | {100 * shared:.1f} % |"
        for head, (private, shared) in enumerate(zip(card["private_accuracy"], card["shared_accuracy"], strict=True))
    )
    if card["deploy"] is None:
        advice = "The run had no validation part, so no head was chosen; the tables above are test accuracies."
    else:
        advice = (
            f"For the owner's own task use head {card['deploy']['private']}, for all classes head "
            f"{card['deploy']['shared']} (chosen on validation data, not on the test accuracies above)."
        )
    backbone = card["model"]["backbone"]
    code = f"- Code: not in this folder; Python must be able to import `{backbone}`.\n" if ":" in backbone else ""
    return f"""# {card["name"]}

A {_named(card["model"])} trained with {card["algorithm"]} on {card["data"]}:
{card["steps"]} steps, seed {card["seed"]}, manyheads {card["version"]}.

{code}- Input: uint8 images of {height} x {width} x {channels} (height x width x channels), 0 to 255.
- Classes: {shown}.
- Private training samples: {card["samples"]}; primary labels: {primary}.

| head | | private accuracy (test) | shared accuracy (test) |
|---|---|---|---|
{rows}

{advice}

```python
import numpy as np
import torch

from manyheads import load_model

classify = load_model("PATH/OF/THIS/FOLDER", task="shared")  # or task="private", or head=0
images = np.zeros((1, {height}, {width}, {channels}), dtype=np.uint8)  # your images
with torch.inference_mode():
    logits = classify(images)
print([classify.class_names[label] for label in logits.argmax(-1)])
```
"""


def _named(model: dict[str, Any]) -> str:
    return f"{model['backbone']} (width {model['width']})" if has_width(model["backbone"]) else str(model["backbone"])


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

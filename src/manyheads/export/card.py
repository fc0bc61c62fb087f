"""The model card of an exported model."""

from pathlib import Path
from typing import Any

from manyheads.models.backbones import has_width
from manyheads.models.external import is_timm
from manyheads.runs.read import read_experiment, read_summary


def describe(folder: Path, client: int) -> dict[str, Any]:
    """Return everything that users of one client's model need to know."""
    experiment, summary = read_experiment(folder), read_summary(folder)
    own = summary.clients[client]
    return {
        "name": own.name,
        "client": client,
        "algorithm": summary.algorithm,
        "data": summary.data,
        "model": experiment.model.for_client(client).model_dump(exclude={"weights"}),  # a path of this machine
        "classes": summary.classes,
        "image_shape": summary.image_shape,
        "heads": len(own.shared_accuracy),
        "samples": own.samples,
        "primary_labels": own.primary_labels,
        "private_accuracy": own.private_accuracy,
        "shared_accuracy": own.shared_accuracy,
        "deploy": own.deploy and own.deploy.model_dump(),
        "steps": summary.steps,
        "seed": summary.seed,
        "version": summary.version,
    }


def card_text(card: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    height, width, channels = card["image_shape"]
    names = card["classes"]
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    primary = ", ".join(names[label] for label in card["primary_labels"]) or "none"
    rows = "\n".join(
        f"| {head} | {'main' if head == 0 else f'auxiliary {head}'} | {100 * private:.1f} % | {100 * shared:.1f} % |"
        for head, (private, shared) in enumerate(zip(card["private_accuracy"], card["shared_accuracy"], strict=True))
    )
    if card["deploy"] is None:
        advice = "The run had no validation part, so no head was chosen; the table above shows test accuracies."
    else:
        advice = (
            f"For the owner's own task use head {card['deploy']['private']}, for all classes use head "
            f"{card['deploy']['shared']} (chosen on validation data, not on the test accuracies above)."
        )
    code = _code_needed(card["model"]["backbone"])
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


def _code_needed(backbone: str) -> str:
    """Return a line about the code that a user of this folder needs, if any."""
    if ":" not in backbone:
        return ""
    trust = "" if is_timm(backbone) else ", and on another machine `load_model` needs `trust_code=True`"
    return f"- Code: not included; Python must be able to import `{backbone}`{trust}.\n"


def _named(model: dict[str, Any]) -> str:
    return f"{model['backbone']} (width {model['width']})" if has_width(model["backbone"]) else str(model["backbone"])

"""The model card of an exported model."""

from pathlib import Path
from typing import Any

import numpy as np

from manyheads.client.balance import log_prior
from manyheads.errors import RunError
from manyheads.evaluation.head_choice import check_task
from manyheads.models.backbones import has_width
from manyheads.models.external import is_timm
from manyheads.runs.read import read_experiment, read_start, read_summary


def describe(folder: Path, client: int, task: str | None = None) -> dict[str, Any]:
    """Return everything that users of one client's model need to know, for one task or for both (None).

    For the shared task nothing is said of the client's own labels.
    """
    if task is not None:
        check_task(task)
    experiment, summary = read_experiment(folder), read_summary(folder)
    if experiment.algorithm.options().get("select") == "oracle":
        raise RunError(
            f'{folder}: algorithm.select = "oracle" read the labels of the public set, so its models are for '
            'measurements only; train with another choice, such as select = "mixture"'
        )
    own = summary.clients[client]
    owners = {
        "samples": own.samples,
        "primary_labels": own.primary_labels,
        "private_accuracy": own.private_task,
        "log_prior": _log_prior(folder, client, experiment.training.balance),
    }
    return {
        **(owners if task != "shared" else {}),
        "task": task,
        "name": own.name,
        "client": client,
        "algorithm": summary.algorithm,
        "data": summary.data,
        "model": experiment.model.for_client(client).model_dump(exclude={"weights"}),  # a path of this machine
        "classes": summary.classes,
        "image_shape": summary.image_shape,
        "heads": len(own.shared_accuracy),
        "shared_accuracy": own.shared_accuracy,
        "deploy": own.deploy and own.deploy.model_dump(),
        "steps": summary.steps,
        "seed": summary.seed,
        "version": summary.version,
    }


def _log_prior(folder: Path, client: int, balance: float) -> list[float] | None:
    """Return what is added to a balanced model's logits for the private task."""
    started = read_start(folder)
    if not balance or started is None:
        return None
    return [float(x) for x in log_prior(np.array(started.label_counts[client]), balance)]


def card_text(card: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    height, width, channels = card["image_shape"]
    names = card["classes"]
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    private = [f"{100 * accuracy:.1f} %" for accuracy in card.get("private_accuracy", [])] or ["-"] * card["heads"]
    rows = "\n".join(
        f"| {head} | {'main' if head == 0 else f'auxiliary {head}'} | {private[head]} | {100 * shared:.1f} % |"
        for head, shared in enumerate(card["shared_accuracy"])
    )
    if card["deploy"] is None:
        advice = "The run had no validation part, so no head was chosen; the table above shows test accuracies."
    else:
        advice = (
            f"For the owner's own task use head {card['deploy']['private']}, for all classes use head "
            f"{card['deploy']['shared']} (chosen on validation data, not on the test accuracies above)."
        )
    if card.get("log_prior") is not None:
        advice += (
            " Heads answer as if all classes were equally frequent. For the owner's own task, how frequent they are "
            f"there is {'added' if card['deploy'] is None or card['deploy']['prior'] else 'not added'} "
            "(`log_prior` in model.json, which follows from the number of private samples of each class). With it go "
            "BatchNorm statistics of its own samples, if there are any: their names begin with `own statistics`."
        )
    code = _code_needed(card["model"]["backbone"])
    return f"""# {card["name"]}

A {_named(card["model"])} trained with {card["algorithm"]} on {card["data"]}:
{card["steps"]} steps, seed {card["seed"]}, manyheads {card["version"]}.

{code}- Input: uint8 images of {height} x {width} x {channels} (height x width x channels), 0 to 255.
- Classes: {shown}.
{_owners_line(card)}
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


def _owners_line(card: dict[str, Any]) -> str:
    """Return a line about the client's private samples; none in what is exported for the shared task."""
    if card["task"] == "shared":
        return ""
    primary = ", ".join(card["classes"][label] for label in card["primary_labels"]) or "none"
    return f"- Private training samples: {card['samples']}; primary labels: {primary}.\n"


def _code_needed(backbone: str) -> str:
    """Return a line about the code that a user of this folder needs, if any."""
    if ":" not in backbone:
        return ""
    trust = "" if is_timm(backbone) else ", and on another machine `load_model` needs `trust_code=True`"
    return f"- Code: not included; Python must be able to import `{backbone}`{trust}.\n"


def _named(model: dict[str, Any]) -> str:
    return f"{model['backbone']} (width {model['width']})" if has_width(model["backbone"]) else str(model["backbone"])

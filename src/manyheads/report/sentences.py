"""Sentences about a run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from manyheads.report.text import MAX_ROWS, bytes_text, head_name, keys_text, names_text, percent
from manyheads.runs.summary import Judged, Summary


def models_text(names: Sequence[str], models: Sequence[str]) -> list[str]:
    """Return a line per client with its model; for many clients a line per different model, with its owners."""
    if len(names) <= MAX_ROWS:
        return [f"{name}: {model}" for name, model in zip(names, models, strict=True)]
    owners: dict[str, list[str]] = {}
    for name, model in zip(names, models, strict=True):
        owners.setdefault(model, []).append(name)
    lines = [f"{names_text(own, 3)}: {model}" for model, own in owners.items()]
    more = len(lines) - MAX_ROWS
    return lines if more <= 0 else [*lines[:MAX_ROWS], f"and {more} more models; metrics.jsonl has the size of all"]


def probe_text(summary: Summary) -> str | None:
    """Say which accuracy the embeddings allow: mean and range over clients."""
    probe = summary.probe
    if not probe:
        return None
    spread = f" ({percent(min(probe))} to {percent(max(probe))})" if len(probe) > 1 else ""
    return (
        f"The embedding allows about {percent(mean(probe))}{spread} % shared accuracy: a new linear head on the frozen "
        "embedding reaches that with the private data of all clients."
    )


def no_gain_text(summary: Summary) -> str | None:
    """Say that distillation did not help, and what may help, if the last head knows less than the main one."""
    shared = (summary.validation or summary).shared_accuracy
    if len(shared) == 1 or shared[-1] >= shared[0]:
        return None
    return (
        f"Distillation did not help here: the shared accuracy of the last head is {percent(shared[-1])} %, that of the "
        f"main head {percent(shared[0])} %. Too few steps, overconfident teachers ({summary.algorithm}: try "
        "algorithm.confidence=density, or look at who taught whom), or too few public samples?"
    )


def deploy_text(summary: Summary) -> str:
    """Say which head to use for what."""
    deploy = summary.deploy
    if deploy is None:
        return "No head is recommended, because test data must not decide that; set data.validation_fraction = 0.1."
    return (
        f"On average, head {deploy.private} ({head_name(deploy.private)}) is best for the private task and "
        f"head {deploy.shared} ({head_name(deploy.shared)}) for the shared one (chosen on validation data; "
        "summary.json and manyheads export have the choice for each client)."
    )


def collapse_text(collapsed: Sequence[Sequence[int]], class_names: Sequence[str]) -> list[str]:
    """Return a line for each head that predicts one class for nearly everything, with the clients concerned."""
    lines = []
    for head in sorted({head for _, head, _ in collapsed}):
        found = [(client, label) for client, at, label in collapsed if at == head]
        clients = names_text([str(client) for client, _ in found])
        labels = names_text(sorted({class_names[label] for _, label in found}))
        advice = (
            "fewer auxiliary heads, or same_level / self_target off, may help" if head else "lower the learning rate"
        )
        lines.append(f"head {head} ({head_name(head)}) of client {clients} has collapsed onto class {labels}; {advice}")
    return lines


def after_text(summary: Summary) -> list[str]:
    """Return a line for each state in which an algorithm is evaluated, with means over clients."""
    return [
        f"after {state}: private{_of_head(judged, 0)} {percent(judged.private_accuracy[0])} %, "
        f"shared{_of_head(judged, -1)} {percent(judged.shared_accuracy[-1])} %"
        for state, judged in summary.after.items()
    ]


def time_text(summary: Summary) -> str:
    """Say in one line where the time went."""
    time, whole = summary.time, summary.seconds
    parts = [(name, seconds) for name, seconds in time.items() if name != "data"]
    parts.append(("the rest", max(0.0, whole - sum(seconds for _, seconds in parts))))
    said = [f"{name} {seconds:.1f} s ({seconds / whole:.0%})" for name, seconds in parts]
    said[0] += f", of which drawing and gathering batches {time['data']:.1f} s"
    return f"Where the time went: {'; '.join(said)}."


def _of_head(judged: Judged, head: int) -> str:
    heads = len(judged.shared_accuracy)
    return f" ({head_name(head % heads)})" if heads > 1 else ""


def differences_text(keys: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return a line per run with the keys in which runs differ: `one: graph.name = "cycle"`.

    A key that only one of them has is left out.
    """

    def differ(key: str) -> bool:
        values = [own[key] for own in keys.values() if key in own]
        return any(value != values[0] for value in values)

    lines = {name: keys_text({key: own[key] for key in own if differ(key)}) for name, own in keys.items()}
    return [f"{name}: {line}" for name, line in lines.items() if line]


def packed_text(card: Mapping[str, Any], out: Path) -> str:
    """Describe a packed folder: `packed: train 50,000, test 10,000 images of 64 x 64 x 3, 0.74 GB`."""
    parts = card["parts"]
    counts = ", ".join(f"{name} {part.get('kept', part['images'])[0]:,}" for name, part in parts.items())
    size = " x ".join(str(side) for side in parts["train"]["images"][1:])
    total = sum(math.prod(part["images"]) for part in parts.values())
    return f'{out}: {counts} images of {size}, {bytes_text(total)}; use it as: source = "packed", path = "{out}"'


def unreadable_text(card: Mapping[str, Any], out: Path) -> list[str]:
    """Say in one line which images were left out."""
    lost = card["unreadable"]
    if not lost:
        return []
    return [
        f"{len(lost)} image(s) could not be read and are left out; all are listed in {out / 'pack.json'}; "
        f"the first: {lost[0]['image']}: {lost[0]['why']}"
    ]

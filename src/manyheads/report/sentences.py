"""Sentences about a run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from manyheads.report.advice import RunSettings, advice_text
from manyheads.report.text import MAX_ROWS, bytes_text, extremes, head_name, keys_text, names_text, percent
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


def prior_text(summary: Summary) -> str | None:
    """Say what private accuracies contain where heads are balanced."""
    if summary.private_with_prior is None:
        return None
    return "private: heads answer as if labels were even, so each client's own label frequencies are added."


def no_gain_text(summaries: Sequence[Summary], settings: RunSettings) -> str | None:
    """Say that distillation did not help, and what to change first, if no better head than the main one is recommended.

    Numbers are those of the table above it: of the test part, means over clients and over the seeds of `summaries`.
    """
    shared, validation = _mean_shared(summaries), [s.validation for s in summaries if s.validation is not None]
    if len(shared) == 1:
        return None
    last = len(shared) - 1
    head = extremes(_mean_shared(validation))[0] if validation else last
    if head == 0:
        found = (
            f"validation data recommend the main head, which nobody teaches, for the shared task (shared accuracy: "
            f"main {percent(shared[0])} %, {head_name(last)} {percent(shared[-1])} %)"
        )
    elif shared[head] < shared[0]:
        which = "recommended for the shared task" if validation else "the last one"
        found = (
            f"the shared accuracy of {head_name(head)}, {which}, is {percent(shared[head])} %, that of the main head, "
            f"which nobody teaches, {percent(shared[0])} %"
        )
    else:
        return None
    return f"Distillation did not help here: {found}. Change first: {advice_text(settings)}."


def _mean_shared(judged: Sequence[Judged]) -> list[float]:
    """Return the shared accuracy by head, as a mean over runs."""
    return [mean(column) for column in zip(*(own.shared_accuracy for own in judged), strict=True)]


def deploy_text(summary: Summary) -> str:
    """Say which head to use for what."""
    deploy = summary.deploy
    if deploy is None:
        return "No head is recommended, because test data must not decide that; set data.validation_fraction = 0.1."
    plain = summary.private_with_prior is not None and not deploy.prior
    how = ", without its owner's label frequencies" if plain else ""
    return (
        f"On average, head {deploy.private} ({head_name(deploy.private)}{how}) is best for the private task and "
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
        f"after {state}: private{_of_head(judged, 0)} {percent(judged.private_task[0])} %, "
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

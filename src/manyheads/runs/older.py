"""Run folders from before files had a format number, brought into today's form.

There, `taught` (in events and in the summary) counted every pair of clients, and evaluations held `accuracy_on`, for
every pair. Today both are in relations.json.
"""

from collections.abc import Sequence
from typing import Any

from manyheads.runs.relations import Relations
from manyheads.runs.stored import Count, Stored, validated

Pairs = list[list[list[Count]]]  # clients x auxiliary heads x teachers


class _OldTaught(Stored):
    step: Count
    chosen: Pairs
    right: Pairs | None = None


def upgrade_event(line: dict[str, Any], where: object) -> dict[str, Any]:
    """Bring an event of an old run into today's form; leave one of today as it is."""
    return _upgrade_taught(line, where) if line.get("event") == "taught" and "chosen" in line else line


def upgrade_summary(values: dict[str, Any], where: object) -> dict[str, Any]:
    """Bring the summary of an old run into today's form; leave one of today as it is."""
    taught = values.get("taught")
    if not isinstance(taught, dict) or "chosen" not in taught:
        return values
    return values | {"taught": _upgrade_taught(taught, where)}


def old_relations(lines: Sequence[dict[str, Any]], where: object) -> Relations | None:
    """Return what the events of an old run last said about pairs of clients; None if they said nothing."""
    found: dict[str, Any] = {}
    for line in lines:
        if line.get("event") == "evaluation" and "accuracy_on" in line:
            found |= {"accuracy_on": line["accuracy_on"], "step": line.get("step")}
        elif line.get("event") == "taught" and "chosen" in line:
            found |= {"chosen": line["chosen"], "right": line.get("right"), "step": line.get("step")}
    return validated(Relations, found, where) if found else None


def _upgrade_taught(values: dict[str, Any], where: object) -> dict[str, Any]:
    old = validated(_OldTaught, values, where)
    validated(Relations, {"step": old.step, "chosen": old.chosen, "right": old.right}, where)
    own, others = _by_head(old.chosen)
    known: dict[str, Any] = {}
    if old.right is not None:
        known["own_right"], known["others_right"] = _by_head(old.right)
    return values | {"own": own, "others": others} | known


def _by_head(pairs: Pairs) -> tuple[list[int], list[list[int]]]:
    """Return what students' own heads taught, by head, and what each client taught others: heads x teachers."""
    heads, clients = range(len(pairs[0]) if pairs else 0), range(len(pairs))
    own = [sum(pairs[student][head][student] for student in clients) for head in heads]
    others = [[sum(pairs[student][head][j] for student in clients if student != j) for j in clients] for head in heads]
    return own, others

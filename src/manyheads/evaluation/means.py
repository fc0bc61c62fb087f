"""Means over clients, and over pairs of clients by their distance in the graph."""

from collections.abc import Sequence


def mean_by_head(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean over clients of a clients x heads table.

    >>> mean_by_head([[0.5, 0.75], [0.75, 1.0]])
    [0.625, 0.875]
    """
    return [sum(column) / len(column) for column in zip(*accuracy, strict=True)]


def hop_means(
    accuracy_on: Sequence[Sequence[Sequence[float]]], hops: Sequence[Sequence[int | None]]
) -> dict[str, list[float]]:
    """Return accuracy by head for each hop distance from a model's client to the data's, a mean over such pairs.

    "0" is a client's own distribution; "none" is that of clients whose knowledge cannot arrive.
    """
    found: dict[str, list[Sequence[float]]] = {}
    for i, by_head in enumerate(accuracy_on):
        for j in range(len(accuracy_on)):
            away = hops[i][j]
            found.setdefault("none" if away is None else str(away), []).append([on[j] for on in by_head])
    ordered = sorted(found, key=lambda away: (away == "none", len(away), away))
    return {away: mean_by_head(found[away]) for away in ordered}

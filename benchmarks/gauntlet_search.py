"""The search that found the gauntlet's design: few cells, in which many pairs of values occur.

    python benchmarks/gauntlet_search.py

Each data set has four cells. From a random start (a fixed seed), single values of a cell are changed, mostly for the
better (simulated annealing): missing pairs cost most, then values that are rare, also among small and among large
cells by themselves, then the time of the small cells beyond what two cores do in an hour with three seeds. Sixteen
clients do not share the digits by Dirichlet 0.1, because some would get none.
"""

from collections import Counter
from itertools import combinations
from math import exp

import numpy as np

from gauntlet_cells import COST, DATA, FACTORS, Cell, covered_pairs, seconds_of

PER_DATA_SET, ROUNDS, HOUR = 4, 60_000, 2_400.0  # seconds of two cores in an hour, for each of three seeds
Values = tuple[object, ...]


def found_design(rounds: int = ROUNDS, seed: int = 0) -> list[Cell]:
    """Return the best design that the search meets."""
    rng = np.random.default_rng(seed)
    levels = list(FACTORS.values())
    rows = [
        [data, *(choice[int(rng.integers(len(choice)))] for choice in levels[1:])]
        for data in DATA
        for _ in range(PER_DATA_SET)
    ]
    now = best = penalty(rows)
    kept = [list(row) for row in rows]
    for turn in range(rounds):
        row, factor = rows[int(rng.integers(len(rows)))], int(rng.integers(1, len(levels)))
        before = row[factor]
        row[factor] = levels[factor][int(rng.integers(len(levels[factor])))]
        then = penalty(rows)
        if then <= now or rng.random() < exp((now - then) / (3.0 * (1.0 - turn / rounds) + 1e-9)):
            now = then
        else:
            row[factor] = before
        if now < best:
            best, kept = now, [list(row) for row in rows]
    return cells_of(kept)


def cells_of(rows: list[list[object]]) -> list[Cell]:
    """Name the rows of each data set, in the order of the factors' values."""
    order = [list(choice).index for choice in FACTORS.values()]
    ordered = sorted(rows, key=lambda row: [at(value) for at, value in zip(order, row, strict=True)])
    short = {data: data.lower().removesuffix("-mnist").replace("coarse cifar-100", "coarse") for data in DATA}
    counted: Counter[object] = Counter()
    cells = []
    for row in ordered:
        counted[row[0]] += 1
        cells.append(Cell(f"{short[str(row[0])].replace('-', '')}-{counted[row[0]]}", *row))  # type: ignore[arg-type]
    return cells


def penalty(rows: list[list[object]]) -> float:
    """Return what is wrong with a design."""
    factors = range(len(FACTORS))
    pairs = {(i, j, row[i], row[j]) for row in rows for i, j in combinations(factors, 2)}
    total = -10.0 * len(pairs)
    for part in (rows, rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        for factor, choice in zip(factors, FACTORS.values(), strict=True):
            counted = Counter(row[factor] for row in part)
            total += sum((counted[value] - len(part) / len(choice)) ** 2 for value in choice) if factor else 0.0
    small = [Cell("", *row) for row in rows[: len(rows) // 2]]  # type: ignore[arg-type]
    seconds = sum(seconds_of(cell, way) for cell in small for way in COST)
    impossible = sum(row[:3] == ["digits", "Dirichlet 0.1", 16] for row in rows)
    twice = len(rows) - len(set(map(tuple, rows)))
    return total + 50.0 * (impossible + twice) + max(0.0, seconds - HOUR) / 20.0


def main() -> None:
    cells = found_design()
    for cell in cells:
        print("    " + repr(cell).replace("'", '"'))
    print("{} of {} pairs".format(*covered_pairs(cells)))
    print(f"small cells, one seed: {sum(seconds_of(c, way) for c in cells if c.size == 'small' for way in COST):.0f} s")


if __name__ == "__main__":
    main()

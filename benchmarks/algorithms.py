"""All algorithms on digits, with equally (s = 0) and unequally (s = 100) distributed labels.

    python benchmarks/algorithms.py [--seeds 3] [--jobs N] [--write docs/measurements.md]

Eight clients as in the demonstration; each sees the same number of private samples, and of public ones where it reads
any: FedMD takes its private and its public batches in different steps, so it has twice as many.
"""

from collections.abc import Sequence

from common import arguments, hardware, markdown_table, printed_demo, publish, received, run_all, spread
from manyheads import Experiment
from manyheads.runs.summary import Judged, Summary


def experiments(skew: float) -> dict[str, Experiment]:
    mhd = printed_demo().with_values(data={"skew": skew})
    steps, cycle = mhd.training.steps, {"name": "cycle"}
    fedmd = {"name": "fedmd", "first_private_steps": 60, "digest_steps": 60, "revisit_steps": 54, "nu_digest": 0.3}
    twice = {"steps": 2 * steps, "learning_rate": 0.05}
    published = {"steps": 2 * steps, "schedule": "constant"}  # as Li and Wang do: revisiting is learning to the end
    average = {"name": "averaging", "average_every": 10}
    return {
        "separate": mhd.with_values(algorithm={"name": "separate"}),
        "mhd, 1 head": mhd.with_values(model={"auxiliary_heads": 1}),
        "mhd, 3 heads": mhd,
        "mhd, 3 heads, density": mhd.with_values(algorithm={"confidence": "density"}),
        "mhd, 3 heads, cycle": mhd.with_values(graph=cycle),
        "gossip averaging, cycle": mhd.with_values(algorithm=average, graph=cycle),
        "FedMD, cycle": mhd.with_values(algorithm=fedmd, training=twice, graph=cycle),
        "FedMD": mhd.with_values(algorithm=fedmd, training=twice),
        "FedMD, constant rate": mhd.with_values(algorithm=fedmd, training=published),
        "FedAvg, every 60 steps": mhd.with_values(algorithm={**average, "average_every": 60}),
        "FedAvg, every 10 steps": mhd.with_values(algorithm=average),
        "supervised": mhd.with_values(algorithm={"name": "separate"}, clients=1),
    }


NEEDS = {
    "separate": "nothing",
    "FedMD": "a centre that hears all clients every round",
    "FedMD, constant rate": "a centre that hears all clients every round",
    "FedAvg, every 60 steps": "a centre; equal models; weights",
    "FedAvg, every 10 steps": "a centre; equal models; weights",
    "gossip averaging, cycle": "one neighbour; equal models; weights",
    "supervised": "all private data in one place",
    "FedMD, cycle": "one neighbour",
    "mhd, 3 heads, cycle": "one neighbour",
}


def states(name: str, found: list[Summary]) -> dict[str, Sequence[Judged]]:
    """Return the results by state: FedMD is evaluated in two states of its last round, the others in one."""
    after = found[0].after
    return {f"{name} (after {state})": [f.after[state] for f in found] for state in after} if after else {name: found}


def main() -> None:
    options = arguments(__doc__)
    lines = []
    made = {f"{skew:g} {name}": e for skew in (0.0, 100.0) for name, e in experiments(skew).items()}
    found = run_all(made, options)
    for name in experiments(0.0):
        by_skew = [states(name, found[f"{skew:g} {name}"]) for skew in (0.0, 100.0)]
        for state in by_skew[0]:
            cells = []
            for judged in by_skew:
                cells.append(spread([s.private_accuracy[0] for s in judged[state]]))
                cells.append(spread([s.shared_accuracy[-1] for s in judged[state]]))
            needs = NEEDS.get(name, "any neighbours")
            lines.append([state, *cells, received(found[f"100 {name}"]), needs])
    header = ["", "private, s = 0", "shared, s = 0", "private, s = 100", "shared, s = 100", "received", "needs"]
    last = f"seeds {options.first} to {options.first + options.seeds - 1}"
    text = f"""`python benchmarks/algorithms.py --seeds {options.seeds}`, {last}; {hardware()}.

{markdown_table(header, lines)}"""
    publish("algorithms", text, options)


if __name__ == "__main__":
    main()

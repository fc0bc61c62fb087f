"""Does knowledge travel hop by hop? Four clients with disjoint labels in a cycle, on two islands, and all connected.

    python benchmarks/transitivity.py [--seeds 3] [--jobs N] [--write docs/measurements.md]

Accuracy of every head on the digits of the client that many hops away; beside it what the embedding allows. With
--write it also draws images/transitivity.png beside the page.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from common import Summaries, arguments, hardware, markdown_table, printed_cycle, publish, run_all, spread
from manyheads import Experiment
from manyheads.report.figures import save_figure
from manyheads.report.text import head_name

GRAPHS: Mapping[str, Mapping[str, Any]] = {
    "cycle": {"name": "cycle"},
    "islands": {"name": "islands", "size": 2},
    "complete": {"name": "complete"},
}


def experiments() -> dict[str, Experiment]:
    base = printed_cycle().with_values(data={"skew": float("inf")}, evaluate={"probe": True})
    return {name: base.with_values(graph=graph) for name, graph in GRAPHS.items()}


def hop_name(graph: str, hop: str) -> str:
    if hop == "none":
        return "the other island"
    return {"0": "own"}.get(hop, f"{hop} hop" + ("s" if hop != "1" else ""))


def figure(found: Summaries) -> Figure:
    """Draw a panel per graph and a line per hop, over heads: means over seeds, with the spread shaded."""
    made = Figure(figsize=(10, 3.4), layout="constrained")
    for number, (graph, summaries) in enumerate(found.items()):
        axes = made.add_subplot(1, len(found), number + 1)
        for colour, hop in enumerate(summaries[0]["by_hop"]):
            values = 100 * np.array([summary["by_hop"][hop] for summary in summaries])
            heads, middle = range(values.shape[1]), values.mean(0)
            axes.plot(heads, middle, marker="o", markersize=4, color=f"C{colour}", label=hop_name(graph, hop))
            axes.fill_between(heads, values.min(0), values.max(0), color=f"C{colour}", alpha=0.15, linewidth=0)
        axes.set(title=graph, ylim=(-3, 103), ylabel="accuracy on their digits, %" if number == 0 else "")
        axes.set_xticks(list(heads), [head_name(head) for head in heads])
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", title="whose digits", title_fontsize="small")
    return made


def main() -> None:
    options = arguments(__doc__)
    found = run_all(experiments(), options)
    lines = []
    for graph, summaries in found.items():
        for hop in summaries[0]["by_hop"]:
            columns = zip(*(summary["by_hop"][hop] for summary in summaries), strict=True)
            lines.append([graph, hop_name(graph, hop), *map(spread, columns), ""])
        shared = [spread(column) for column in zip(*(s["shared_accuracy"] for s in summaries), strict=True)]
        allowed = spread([float(np.mean(summary["probe"])) for summary in summaries])
        lines.append([graph, "all digits", *shared, allowed])
    heads = [head_name(head) for head in range(len(found["cycle"][0]["shared_accuracy"]))]
    seeds = f"seeds {options.first} to {options.first + options.seeds - 1}"
    text = f"""`python benchmarks/transitivity.py --seeds {options.seeds}`, {seeds}; {hardware()}.

{markdown_table(["graph", "whose digits", *heads, "embedding allows"], lines)}

![Accuracy by head on the digits of clients one, two and three hops away](images/transitivity.png)"""
    publish("transitivity", text, options)
    if options.write is not None:
        save_figure(figure(found), options.write.parent / "images" / "transitivity.png")


if __name__ == "__main__":
    main()

"""Measures of confidence on digits: the paper's largest probability against others.

    python benchmarks/confidence.py [--seeds 3] [--jobs N] [--write docs/measurements.md]

The table also says how often the chosen teacher was right, on public samples whose labels training never sees.
"""

import numpy as np

from common import arguments, hardware, markdown_table, printed_demo, publish, run_all, spread
from manyheads.exchange.named_confidences import CONFIDENCES


def main() -> None:
    options = arguments(__doc__)
    demo = printed_demo()
    made = {name: demo.with_values(algorithm={"confidence": name}) for name in CONFIDENCES}
    found = run_all({**made, "random choice": demo.with_values(algorithm={"select": "random"})}, options)
    lines = []
    for name, summaries in found.items():
        shared = [spread(column) for column in zip(*(s["shared_accuracy"] for s in summaries), strict=True)]
        counts = [[np.sum(s["taught"][what], axis=(0, 2)) for what in ("right", "chosen")] for s in summaries]
        right = np.mean([hits / choices for hits, choices in counts], axis=0)
        private = spread([summary["private_accuracy"][0] for summary in summaries])
        lines.append([name, private, *shared, ", ".join(f"{100 * value:.1f}" for value in right)])
    heads = [f"shared, {'main' if head == 0 else f'head {head}'}" for head in range(len(shared))]
    seeds = f"seeds {options.first} to {options.first + options.seeds - 1}"
    text = f"""`python benchmarks/confidence.py --seeds {options.seeds}`, {seeds}; {hardware()}.

{markdown_table(["confidence", "private, main", *heads, "chosen teacher right, heads 1 to 3"], lines)}"""
    publish("confidence", text, options)


if __name__ == "__main__":
    main()

"""The choice of the demonstration's settings: each one changed alone, judged on validation data.

    python benchmarks/demo_settings.py [--seeds 4]

Prints the shared accuracy by head on the validation part, mean over clients and seeds; test data are not used.
"""

import argparse
from statistics import mean
from typing import Any

from common import printed_demo
from manyheads import train

CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "targets_per_step = 1": {"targets_per_step": 1},
    "pool_every = 20": {"pool_every": 20},
    "pool_size = 4": {"pool_size": 4},
    "pool_start = empty": {"pool_start": "empty"},
    "no ramp": {"ramp": {"hold": 0.0, "rise": 0.0}},
    "no ramp, pool_start = empty": {"ramp": {"hold": 0.0, "rise": 0.0}, "pool_start": "empty"},
    "nu_emb = 0": {"nu_emb": 0.0},
    "nu_emb = 3": {"nu_emb": 3.0},
    "nu_aux = 1": {"nu_aux": 1.0},
    "select = random": {"select": "random"},
    "select = all": {"select": "all"},
    "confidence = entropy": {"confidence": "entropy"},
    "confidence = margin": {"confidence": "margin"},
    "same_level, self_target": {"same_level": True, "self_target": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(parser.parse_args().seeds)
    print(f"| changed | private, main | shared by head (validation, %, mean of {len(seeds)} seeds) |\n|---|---|---|")
    for name, knobs in CHANGES.items():
        experiment = printed_demo().with_values(algorithm=knobs)
        found = [train(experiment.with_values(seed=seed)).summary["validation"] for seed in seeds]
        shared = [100 * mean(column) for column in zip(*(f["shared_accuracy"] for f in found), strict=True)]
        private = 100 * mean(f["private_accuracy"][0] for f in found)
        print(f"| {name} | {private:.1f} | {', '.join(f'{value:.1f}' for value in shared)} |", flush=True)


if __name__ == "__main__":
    main()

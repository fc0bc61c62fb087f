"""The choice of settings for FedMD, FedAvg and the density measure: on validation data, with seeds that no table shows.

    python benchmarks/rival_settings.py [--seeds 2] [--first 3] [--jobs N]

Eight clients as in the demonstration, s = 100, equal private and public samples. Test data are not looked at.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import mean

import torch
from torch import Tensor

from common import arguments, hardware, markdown_table, printed_demo
from manyheads import Experiment, train
from manyheads.exchange.density import Density
from manyheads.runs.summary import Summary

Confidence = Callable[[Density, Tensor, Tensor], Tensor]


def for_all_heads(density: Density, p_BHC: Tensor, embedding_BE: Tensor) -> Tensor:
    return p_BHC.amax(-1) * density.typicality(embedding_BE)[:, None]


def typicality_only(density: Density, p_BHC: Tensor, embedding_BE: Tensor) -> Tensor:
    return density.typicality(embedding_BE)[:, None].expand(p_BHC.shape[:2]).clone()


def to_the_power(power: float) -> Confidence:
    def confidence(density: Density, p_BHC: Tensor, embedding_BE: Tensor) -> Tensor:
        confidence_BH = p_BHC.amax(-1)
        confidence_BH[:, 0] *= density.typicality(embedding_BE) ** power
        return confidence_BH

    return confidence


DENSITIES: dict[str, Confidence] = {
    "density": Density.confidence,
    "density, for all heads": for_all_heads,
    "density, without the largest probability": typicality_only,
    "density, squared": to_the_power(2.0),
    "density, its root": to_the_power(0.5),
}


def fedmd(weight: float, first: int, digest: int, revisit: int, rate: float, schedule: str = "cosine") -> Experiment:
    knobs = {"first_private_steps": first, "digest_steps": digest, "revisit_steps": revisit, "nu_digest": weight}
    training = {"steps": 1200, "learning_rate": rate, "schedule": schedule}
    return printed_demo().with_values(algorithm={"name": "fedmd", **knobs}, training=training)


def experiments() -> dict[str, Experiment]:
    demo = printed_demo()
    made = {"mhd, largest probability": demo}
    made |= {name: demo.with_values(algorithm={"confidence": "density"}) for name in DENSITIES}
    for weight, first, digest, revisit, rate, schedule in (
        (0.3, 0, 10, 10, 0.03, "cosine"),
        (0.3, 0, 30, 30, 0.03, "cosine"),
        (0.3, 0, 60, 60, 0.03, "cosine"),
        (0.3, 0, 100, 100, 0.03, "cosine"),
        (0.1, 0, 60, 60, 0.03, "cosine"),
        (1.0, 0, 60, 60, 0.03, "cosine"),
        (3.0, 0, 60, 60, 0.03, "cosine"),
        (0.3, 60, 60, 54, 0.03, "cosine"),
        (0.3, 120, 60, 48, 0.03, "cosine"),
        (1.0, 120, 60, 48, 0.03, "cosine"),
        (0.3, 60, 60, 54, 0.05, "cosine"),
        (0.3, 60, 60, 54, 0.02, "constant"),
        (0.3, 60, 60, 54, 0.03, "constant"),
        (0.3, 60, 60, 54, 0.05, "constant"),
    ):
        name = f"FedMD, weight {weight:g}, {first} + rounds of {digest} + {revisit}, {schedule} {rate:g}"
        made[name] = fedmd(weight, first, digest, revisit, rate, schedule)
    for every in (10, 60):
        for rate in (0.03, 0.1):
            average = {"name": "averaging", "average_every": every}
            made[f"FedAvg, every {every}, cosine {rate:g}"] = demo.with_values(
                algorithm=average, training={"learning_rate": rate}
            )
    return made


def run(job: tuple[str, Experiment]) -> Summary:
    name, experiment = job
    setattr(Density, "confidence", DENSITIES.get(name, Density.confidence))  # noqa: B010
    return train(experiment).summary


def main() -> None:
    options = arguments(__doc__, seeds=2, first=3)
    seeds = range(options.first, options.first + options.seeds)
    jobs = [(name, experiment.with_values(seed=seed)) for name, experiment in experiments().items() for seed in seeds]
    # Each run in a process of its own: the forms of the density measure are put in place of each other.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        found = list(pool.map(run, jobs))
    lines = []
    for name in experiments():
        judged = [summary["validation"] for (of, _), summary in zip(jobs, found, strict=True) if of == name]
        private = mean(part["private_accuracy"][0] for part in judged)
        shared = mean(part["shared_accuracy"][-1] for part in judged)
        lines.append([name, f"{100 * private:.1f}", f"{100 * shared:.1f}"])
    print(f"Validation accuracy in %, seeds {seeds[0]} to {seeds[-1]}; {hardware()}.\n")
    print(markdown_table(["", "private, main", "shared, last head"], lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

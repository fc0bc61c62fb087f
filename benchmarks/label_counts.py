"""What answers tell about how many private samples of each label a client has, with balance and without.

    python benchmarks/label_counts.py [--seeds 3]

A neighbour of the demonstration's clients guesses a client's label distribution from what its main head, and its first
auxiliary head, say about the public set at the end: from the mean of their probabilities, from how often they predict
each label, and from the same where confidence counts. The error is half the sum of absolute differences to the true
distribution, a mean over clients and seeds; *even* is the error of guessing that all labels are equally frequent.
"""

from collections.abc import Mapping
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from common import arguments, hardware, markdown_table, printed_demo
from manyheads import Experiment, train
from manyheads.client.client import Client
from manyheads.studies.demo import demo_experiment

GUESSES = ("mean probability", "predicted labels", "the same, by confidence")
COLUMNS = (*GUESSES, *(f"head 1: {guess}" for guess in GUESSES), "even")


def settings() -> Mapping[str, Experiment]:
    default = demo_experiment()
    knobs: dict[str, dict[str, Any]] = {"max_probability": {"confidence": "max_probability"}}
    return {
        "as printed": printed_demo(),
        "defaults, balance = 0": default.with_values(training={"balance": 0.0}),
        "defaults, own_labels = 0": default.with_values(algorithm={"own_labels": 0.0}),
        "defaults, confidence = max_probability": default.with_values(algorithm=knobs["max_probability"]),
        "defaults": default,
    }


@torch.no_grad()
def errors(client: Client, confidence: Any) -> list[float]:
    """Return the error of each guess about one client."""
    assert client.public is not None
    rows = client.public.rows_in_view(torch.arange(len(client.public)).numpy(), 0, client.state.values.dtype)
    outputs = client.snapshot(client.training.steps).outputs(rows)
    p_BHC, weight_BH = outputs.probabilities_BHC, confidence.of(outputs)
    predicted_BHC = one_hot(p_BHC.argmax(-1), p_BHC.shape[-1]).to(p_BHC.dtype)
    guesses = []
    for head in (0, 1):
        p_BC, predicted_BC, weight_B1 = p_BHC[:, head], predicted_BHC[:, head], weight_BH[:, head, None]
        guesses += [p_BC.mean(0), predicted_BC.mean(0), (weight_B1 * predicted_BC).sum(0)]
    true_C = torch.from_numpy(client.label_distribution)
    return [_error(guess_C.double(), true_C) for guess_C in (*guesses, torch.ones(p_BHC.shape[-1]))]


def _error(guess_C: Tensor, true_C: Tensor) -> float:
    return float((guess_C / guess_C.sum() - true_C).abs().sum() / 2)


def main() -> None:
    options = arguments(__doc__)
    table = []
    for name, experiment in settings().items():
        found = []
        for seed in range(options.first, options.first + options.seeds):
            result = train(experiment.with_values(seed=seed), progress=False)
            confidence = result.clients[0].origin.confidence
            found += [errors(client, confidence) for client in result.clients]
        table.append([name, *(f"{mean(column):.2f}" for column in zip(*found, strict=True))])
    print(hardware())
    print(markdown_table(["settings", *COLUMNS], table))


if __name__ == "__main__":
    main()

"""The cost and the worth of an exchange: predictions against weights on digits, and bytes at CIFAR-100's size.

    python benchmarks/communication.py --only complete|cycle|counted|estimate [--seeds 3] [--write docs/measurements.md]

`counted` is counted from encoded messages of that size, `estimate` from the sizes of messages at the paper's own scale;
nothing is trained for them.
"""

import argparse
from statistics import mean
from typing import Any

import numpy as np
import torch

from common import hardware, markdown_table, parser_for, printed_cycle, printed_demo, publish, received, run_all, spread
from manyheads import Experiment
from manyheads.algorithms.mhd import MHD
from manyheads.config.experiment import ModelConfig
from manyheads.data.arrays import content_hashes
from manyheads.data.batches import Pixels, Rows, Samples
from manyheads.exchange.message import Header
from manyheads.exchange.row_format import RowFormat
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.weights import Replica
from manyheads.models.client_model import make_model
from manyheads.outputs import Outputs
from manyheads.seeds import EVERYONE
from manyheads.studies.paper.scales import SCALES

TABLES: dict[str, dict[str, Any]] = {
    "all 10, float32, embedding": {"top_k": 10, "precision": "float32"},
    "top 3, float16, embedding": {"top_k": 3},
    "all 10, float16": {"top_k": 10, "nu_emb": 0.0},
    "top 3, float16": {"top_k": 3, "nu_emb": 0.0},
    "top 3, float16, renormalised": {"top_k": 3, "nu_emb": 0.0, "rest": "renormalise"},
    "top 3, 8 bits": {"top_k": 3, "nu_emb": 0.0, "precision": "uint8"},
    "top 1, float16": {"top_k": 1, "nu_emb": 0.0},
    "top 1, float16, renormalised": {"top_k": 1, "nu_emb": 0.0, "rest": "renormalise"},
}


def experiments() -> dict[str, Experiment]:
    demo = printed_demo()
    made = {"weights": demo, "weights, nu_emb = 0": demo.with_values(algorithm={"nu_emb": 0.0})}
    return made | {
        name: demo.with_values(algorithm={"exchange": "predictions", **knobs}) for name, knobs in TABLES.items()
    }


CLASSES, PUBLIC, HEADS, WIDTH, EXCHANGES = 100, 5_000, 5, 512, 40
MESSAGES: dict[str, dict[str, Any]] = {
    "predictions: top 3, float16": {"top_k": 3, "nu_emb": 0.0},
    "predictions: top 3, 8 bits": {"top_k": 3, "nu_emb": 0.0, "precision": "uint8"},
    "predictions: top 8, float16": {"top_k": 8, "nu_emb": 0.0},
    "predictions: top 8, float16, embedding": {"top_k": 8},
}


class RandomModel:
    """A stand-in for a model, with random answers: the size of a message does not depend on them."""

    client, step, values = 0, 0, torch.zeros(0)

    def outputs(self, rows: Rows) -> Outputs:
        logits_BHC = torch.randn(len(rows.samples), HEADS, CLASSES)
        return Outputs(logits_BHC.softmax(-1), torch.randn(len(rows.samples), WIDTH))


def counted() -> list[list[str]]:
    """Count the bytes that a client receives at an exchange, in messages as they are sent."""
    config = ModelConfig(backbone="resnet18", width=64)
    model = make_model(config, image_shape=(32, 32, 3), heads=1, classes=CLASSES)
    sizes = {"FedAvg: one ResNet-18": Replica(model).encoded_size}
    images = np.random.default_rng(0).integers(0, 256, (PUBLIC, 32, 32, 3), dtype=np.uint8)
    public = Samples(
        Pixels(images, torch.device("cpu")),
        None,
        np.arange(PUBLIC),
        seed=0,
        purpose="public",
        client=EVERYONE,
        augment="none",
        views_of=EVERYONE,
        views=1,
    )
    for name, knobs in MESSAGES.items():
        sent = MHD(exchange="predictions", **knobs).table_contents(HEADS, CLASSES)
        assert sent is not None
        width = WIDTH if sent.embedding else 0
        schema = TableSchema("0" * 64, sent.form, sent.rest, (width,), public, content_hashes(images), whole=True)
        sizes[name] = len(schema.encode(RandomModel(), schema.every_row))  # type: ignore[arg-type]
    model_size = sizes["FedAvg: one ResNet-18"]
    return [
        [name, f"{size / 1e6:.3f} MB", f"{EXCHANGES * size / 1e6:.1f} MB", f"{model_size / size:.0f}"]
        for name, size in sizes.items()
    ]


def estimate() -> list[list[str]]:
    """Compute, as Section 3.2 of the paper, the steps of distillation that cost as much as a round of FedAvg."""
    paper = SCALES["imagenet"].mhd
    model = make_model(paper.model.for_client(0), image_shape=(224, 224, 3), heads=1, classes=1000)
    replica = Replica(model)
    numbers, size = 2 * replica.state.values.numel(), 2 * replica.encoded_size
    found = [["a round of FedAvg, ResNet-34", f"{numbers / 1e6:.1f} million", f"{size / 1e6:.1f} MB", "", ""]]
    for heads, top_k in ((1, 3), (1, 5), (4, 3), (4, 5)):
        rows = paper.training.public_batch_size
        form = RowFormat(classes=1000, heads=heads, top_k=top_k, precision="float16", confidence=False)
        header = Header(version=1, experiment="0" * 64, client=0, step=60_000, rows=rows, embedding=0, form=form)
        said, sent = rows * heads * top_k, header.message_size
        name = f"a step: {rows} samples, top {top_k}, {heads} head{'s' * (heads > 1)}"
        found.append([name, f"{said:,}", f"{sent / 1e3:.1f} kB", f"{numbers / said:,.0f}", f"{size / sent:,.0f}"])
    return found


def cycle() -> dict[str, Experiment]:
    """Return experiments with four clients in a cycle, where embeddings matter more."""
    base = printed_cycle()
    knobs: dict[str, dict[str, Any]] = {
        "weights": {},
        "weights, nu_emb = 0": {"nu_emb": 0.0},
        "top 3, float16, embedding": {"exchange": "predictions", "top_k": 3},
        "top 3, float16": {"exchange": "predictions", "top_k": 3, "nu_emb": 0.0},
    }
    return {name: base.with_values(algorithm=changed) for name, changed in knobs.items()}


def accuracies(experiments: dict[str, Experiment], options: argparse.Namespace) -> str:
    """Run all experiments; return a Markdown table with the command that made it."""
    found = run_all(experiments, options)
    reference = mean(summary["shared_accuracy"][-1] for summary in found["weights"])
    lines = []
    for name, summaries in found.items():
        last = [summary["shared_accuracy"][-1] for summary in summaries]
        private = [summary["private_accuracy"][0] for summary in summaries]
        difference = f"{100 * (mean(last) - reference):+.1f}"
        lines.append([name, spread(private), spread(last), difference, received(summaries)])
    seeds = f"seeds {options.first} to {options.first + options.seeds - 1}"
    header = ["what is exchanged", "private, main", "shared, last head", "against weights", "received per client"]
    command = f"`python benchmarks/communication.py --only {options.only} --seeds {options.seeds}`"
    return f"{command}, {seeds}; {hardware()}.\n\n{markdown_table(header, lines)}"


def main() -> None:
    parser = parser_for(__doc__)
    parser.add_argument(
        "--only", choices=["complete", "cycle", "counted", "estimate"], required=True, help="which table"
    )
    options = parser.parse_args()
    if options.only == "complete":
        publish("communication", accuracies(experiments(), options), options)
    elif options.only == "cycle":
        publish("communication-cycle", accuracies(cycle(), options), options)
    elif options.only == "estimate":
        columns = ["what is sent", "numbers", "bytes", "steps for a round, by numbers", "by bytes"]
        command = "`python benchmarks/communication.py --only estimate`, from sizes of messages."
        publish("communication-estimate", f"{command}\n\n{markdown_table(columns, estimate())}", options)
    else:
        columns = ["received at an exchange", "bytes", f"in {EXCHANGES} exchanges", "times fewer than FedAvg"]
        command = "`python benchmarks/communication.py --only counted`, from encoded messages."
        publish("communication-counted", f"{command}\n\n{markdown_table(columns, counted())}", options)


if __name__ == "__main__":
    main()

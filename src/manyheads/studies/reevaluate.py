"""Evaluating a finished run again: everything that was measured at its end, and a probe of its embeddings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.client.state import ClientState, restore_client
from manyheads.errors import START_AGAIN, RunError
from manyheads.evaluation.accuracy import accuracy_on, evaluation_of, score_client
from manyheads.evaluation.means import hop_means, mean_by_head
from manyheads.runs.manifest import read_manifest
from manyheads.runs.read import read_experiment, read_summary
from manyheads.runs.summary import Summary
from manyheads.runs.tensors import read_client_values
from manyheads.runs.trust import trust_in_run
from manyheads.setup.build import assemble


@dataclass(frozen=True)
class Reevaluation:
    """The result of `manyheads evaluate`: a summary to show, and the measurements to write."""

    summary: Summary
    measured: dict[str, Any]


def reevaluate(
    folder: Path, *, device: str = "cpu", with_probe: bool = False, trust_code: bool = False
) -> Reevaluation:
    """Load the clients of a finished run and measure them. `trust_code`: import code that a stranger's run names."""
    summary = read_summary(folder)
    manifest = read_manifest(folder, ended=True)
    trust = trust_in_run(folder, trust_code=trust_code)
    ensemble = assemble(read_experiment(folder), device, pretrained=False, trust=trust)
    if manifest.data != ensemble.resolved.dataset.fingerprint():
        raise RunError(f"{folder}: the data have changed since this run; {START_AGAIN}")
    for client in ensemble.clients:
        tensors = read_client_values(folder, manifest, client.index)
        restore_client(client, ClientState(tensors, "", [], 0), str(folder))
    measured: dict[str, Any] = {}
    for part in ensemble.parts:
        scores = [score_client(client, part) for client in ensemble.clients]
        found, on = evaluation_of(ensemble.clients, part.name, scores), accuracy_on(ensemble.clients, scores)
        none: list[list[float] | None] = [None] * len(ensemble.clients)
        measured[part.name] = {
            "private_accuracy": mean_by_head(found.private_accuracy),
            "private_with_prior": found.private_with_prior and mean_by_head(found.private_with_prior),
            "shared_accuracy": mean_by_head(found.shared_accuracy),
            "clients": [
                {"private_accuracy": private, "private_with_prior": with_prior, "shared_accuracy": shared}
                for private, with_prior, shared in zip(
                    found.private_accuracy,
                    found.private_with_prior or none,
                    found.shared_accuracy,
                    strict=True,
                )
            ],
            "by_hop": hop_means(on, ensemble.resolved.hops(summary.steps)),
            "accuracy_on": on,
        }
    measured["probe"] = ensemble.probes() if with_probe else None
    test = measured["test"]
    clients = [own.model_copy(update=judged) for own, judged in zip(summary.clients, test["clients"], strict=True)]
    now = {key: test[key] for key in ("private_accuracy", "private_with_prior", "shared_accuracy", "by_hop")}
    anew = summary.model_copy(update=now | {"clients": clients, "probe": measured["probe"] or summary.probe})
    return Reevaluation(anew, measured)

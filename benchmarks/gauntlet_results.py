"""A run of the gauntlet, what is stored about it, and the accuracies that count."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from pydantic import ValidationError

from manyheads import Experiment, train
from manyheads.evaluation.means import mean_by_head
from manyheads.files import read_file, write_whole
from manyheads.report.beside import recommended_accuracy
from manyheads.runs.events import EvaluationEvent, Event
from manyheads.runs.stored import Count, Stored
from manyheads.runs.summary import Accuracies, ClientSummary, Summary
from manyheads.setup.build import Ensemble
from manyheads.studies.paper.cell_worker import hardware_name
from manyheads.studies.paper.code_of_numbers import same_numbers
from manyheads.studies.paper.keys import cell_key
from manyheads.training.observer import SilentObserver


class Result(Stored):
    """A finished run."""

    cell: str
    way: str
    seed: Count
    key: str  # of its configuration
    code: str  # of the code that decides numbers
    data: str  # a hash of the data
    hardware: str
    states: dict[str, dict[str, Accuracies]]  # part of the data -> state of the algorithm -> means over clients
    summary: Summary

    @property
    def made_by(self) -> str:
        """Name the machine and how it computed."""
        return f"{self.hardware}, {self.summary.engine} engine, {self.summary.precision}, torch {self.summary.torch}"


Results = dict[tuple[str, str, int], Result]  # by cell, way and seed


@dataclass(frozen=True)
class Job:
    """A run that is to be made."""

    cell: str
    way: str
    experiment: Experiment
    code: str
    seconds: float  # an estimate
    engine: str = "plain"

    @property
    def at(self) -> tuple[str, str, int]:
        return self.cell, self.way, self.experiment.seed

    def __str__(self) -> str:
        return f"{self.cell}, {self.way}, seed {self.experiment.seed}"

    def place(self, folder: Path) -> Path:
        return folder / f"{self.cell}-{self.way}-seed-{self.experiment.seed}.json"

    def stored(self, folder: Path, *, keep: bool) -> Result | None:
        """Return the stored result, unless another configuration or (without `keep`) other code made it."""
        try:
            found = Result.model_validate_json(read_file(self.place(folder)))
        except (FileNotFoundError, ValidationError):
            return None
        fits = (*self.at, cell_key(self.experiment)) == (found.cell, found.way, found.seed, found.key)
        return found if fits and (keep or same_numbers(found.code)) else None


@dataclass
class _States(SilentObserver):
    """The observer of what a summary lacks: accuracies in the algorithm's states, and what the data are."""

    data: str = ""
    found: dict[str, dict[str, Accuracies]] = field(default_factory=dict)

    def started(self, ensemble: Ensemble, step: int) -> None:
        self.data = ensemble.resolved.dataset.fingerprint()

    def happened(self, event: Event) -> None:
        if isinstance(event, EvaluationEvent) and event.after is not None:
            prior = event.private_with_prior
            self.found.setdefault(event.part, {})[event.after] = Accuracies(
                private_accuracy=mean_by_head(event.private_accuracy),
                private_with_prior=None if prior is None else mean_by_head(prior),
                shared_accuracy=mean_by_head(event.shared_accuracy),
            )


def run(job: Job) -> Result:
    """Train, and return what is stored."""
    seen = _States()
    summary = train(job.experiment, observer=seen, engine=job.engine).summary
    return Result(
        cell=job.cell,
        way=job.way,
        seed=job.experiment.seed,
        key=cell_key(job.experiment),
        code=job.code,
        data=seen.data,
        hardware=hardware_name(summary.device or "cpu"),
        states=seen.found,
        summary=summary,
    )


def store(result: Result, place: Path) -> None:
    """Write a result whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, result.model_dump_json(exclude_none=True).encode() + b"\n")


def accuracy(result: Result, task: str, part: str) -> float:
    """Return the accuracy at the heads recommended to clients, a mean over these, on test or on validation data.

    An algorithm with several states (FedMD) gets the best of them, with clients' priors or without, by the very
    accuracy that is asked for: this favours it.
    """
    own = mean(recommended_accuracy(_judged_on(client, part), task) for client in result.summary.clients)
    return max([own, *_in_states(result, task, part)])


def _in_states(result: Result, task: str, part: str) -> Iterator[float]:
    for of in result.states.get(part, {}).values():
        yield from of.shared_accuracy if task == "shared" else [*of.private_accuracy, *(of.private_with_prior or [])]


def _judged_on(client: ClientSummary, part: str) -> ClientSummary:
    """Return a client whose accuracies are those on a part of the data."""
    if part == "test":
        return client
    assert client.validation is not None, "every cell has a validation part"
    return client.model_copy(update=client.validation.model_dump())

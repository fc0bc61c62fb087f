"""What is kept of a cell when its run has ended: one small JSON file, found again by the hash of what made it.

A result belongs to a configuration (where the data lie, how often to save and to look are not part of it) and to the
code that decides numbers. The key has what differs from defaults: a new knob does not change the keys of old cells.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import re
import tokenize
from ast import ClassDef, Constant, Expr, FunctionDef, Module, parse, walk
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from manyheads.algorithms import make_algorithm
from manyheads.errors import RunError
from manyheads.experiment import Experiment
from manyheads.files import write_whole
from manyheads.runs import Manifest, read_events, read_summary

# Everything between a configuration and an accuracy.
DECIDES_NUMBERS = (
    "seeds.py", "outputs.py", "experiment.py", "graph.py", "data", "models", "confidence.py", "density.py",
    "distillation.py", "snapshot.py", "predictions.py", "pool.py", "client.py", "algorithms", "evaluate.py",
    "checks.py", "ensemble.py", "engine", "training.py", "runs.py", "summary.py",
)  # fmt: skip
# Versions of it that give the same numbers, the oldest first: between them only speed or form changed, as is shown by
# tests that compare numbers. Where today's is in none of these lines, what it did not make itself is run again.
SAME_NUMBERS = (
    (
        "a21fdd104e03cd68",
        "1e093aec37ecb2fe",  # dropout's kernel: tests/models/test_dropout.py
        "23eec4ebcf488ca5",  # batches of several stretches are drawn together: tests/engine/test_cuda.py
        "b96dea94f88df076",  # what would be sent stays on the GPU: tests/test_predictions.py; tests/test_density.py
        "adcb90450e8a45b1",  # how often is saved; form of sgd and teachers: tests/golden; tests/engine/test_cuda.py
        "f8817fcf676103f5",  # notes on keys without effect: tests/golden
        "ac85968d7129e7ee",  # pooling's kernel: tests/models/test_same_pool.py
        "854d3a2153b5dc22",  # heads may see feature maps: tests/golden; shortcuts below 16 channels, which no cell has
        "8a489e6d3129e6bd",  # runs.py and summary.py count, too; a checkpoint knows the keys of its file: tests/golden
    ),
)


class OfClient(BaseModel):
    """One client's accuracies, by head."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    backbone: str
    width: int | None
    private_accuracy: list[float]
    shared_accuracy: list[float]


class Result(BaseModel):
    """A cell for one seed. Accuracies are fractions by head, means over clients unless they stand under `clients`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    cell: str  # as the reproduction called it that ran it first
    scale: str
    seed: int
    key: str  # of its configuration
    code: str  # of the code that decides numbers
    experiment: dict[str, Any]  # what differs from defaults
    data: str | None  # a hash of the data
    version: str
    torch: str
    hardware: str
    engine: str
    precision: str
    seconds: float
    private_accuracy: list[float]
    shared_accuracy: list[float]
    validation: dict[str, list[float]] | None
    by_hop: dict[str, list[float]]
    after: dict[str, list[float]]  # state of the algorithm -> shared accuracy of the main head of each client
    probe: list[float] | None
    bytes_received: list[int]
    collapsed: list[list[int]]
    clients: list[OfClient]

    def apart_from(self, other: "Result") -> list[str]:
        """What of all that was measured is not the same, number by number, as they are stored."""
        one, two = self.as_stored(), other.as_stored()
        return [name for name in MEASURED if one[name] != two[name]]

    def farthest(self, other: "Result", names: Iterable[str]) -> float:
        """By how much an accuracy is not the same, at most, of those that were measured under these names."""
        one, two = (_fractions({name: result.as_stored()[name] for name in names}) for result in (self, other))
        return max(abs(one[place] - two[place]) for place in one.keys() & two.keys())

    @property
    def made_by(self) -> str:
        """All that last bits may depend on, beside the code."""
        return f"{self.hardware}, {self.engine} engine, {self.precision}, torch {self.torch}"

    def as_stored(self) -> dict[str, Any]:
        """With five decimals."""
        text = self.model_dump_json(exclude={"experiment"})
        told: dict[str, Any] = json.loads(text, parse_float=lambda number: round(float(number), 5))
        return told | {"experiment": self.experiment}

    @property
    def meant_data(self) -> str:
        """What it was meant to read, wherever that lay: the results of one table may be of different sets."""
        return str({key: self.experiment.get("data", {}).get(key) for key in ("label", "public")})


MEASURED = (
    "private_accuracy", "shared_accuracy", "validation", "by_hop", "after", "probe", "bytes_received", "collapsed",
    "clients",
)  # fmt: skip
Stored = dict[tuple[str, int], Result]  # by key and seed


def _fractions(measured: Any, place: str = "") -> dict[str, float]:
    """All of them, by where they stand; counts are whole numbers."""
    if isinstance(measured, dict | list):
        inside = measured.items() if isinstance(measured, dict) else enumerate(measured)
        return {at: found for key, part in inside for at, found in _fractions(part, f"{place}/{key}").items()}
    return {place: measured} if isinstance(measured, float) else {}


def result_of(experiment: Experiment, folder: Path, *, cell: str, scale: str, hardware: str) -> Result:
    """What is kept of a finished run."""
    summary, events = read_summary(folder), read_events(folder)
    judged = {event["after"]: event for event in events if event.get("after") and event["part"] == "test"}
    return Result(
        cell=cell,
        scale=scale,
        seed=experiment.seed,
        key=key_of(experiment),
        code=code_of_numbers(),
        experiment=told_of(experiment),
        data=Manifest.unseal(folder / "checkpoints" / "manifest.json").data,
        hardware=hardware,
        after={after: [by_head[0] for by_head in event["shared_accuracy"]] for after, event in judged.items()},
        clients=[OfClient(**{name: own[name] for name in OfClient.model_fields}) for own in summary["clients"]],
        **{name: summary[name] for name in _AS_IN_SUMMARY},
    )


_AS_IN_SUMMARY = (
    "version", "torch", "engine", "precision", "seconds", "private_accuracy", "shared_accuracy", "validation", "by_hop",
    "probe", "bytes_received", "collapsed",
)  # fmt: skip


def key_of(experiment: Experiment) -> str:
    """A hash of all that a configuration says about numbers, but for the seed."""
    values = {name: value for name, value in told_of(experiment).items() if name != "seed"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def told_of(experiment: Experiment) -> dict[str, Any]:
    """What differs from defaults, without what is not about numbers: paths, how often something is written down."""
    values = experiment.model_dump(exclude_none=True, exclude_defaults=True)
    values["data"].pop("path", None)
    if isinstance(values["data"].get("public"), dict):
        values["data"]["public"].pop("path", None)
    for section, name in (("training", "save_seconds"), ("training", "log_every"), ("evaluate", "every")):
        values.get(section, {}).pop(name, None)
    made: Any = make_algorithm(experiment.algorithm)
    fields = [(field, getattr(made, field.name)) for field in dataclasses.fields(made)]
    chosen = {field.name: knob for field, knob in fields if knob != _usual(field)}
    plain = {name: knob.model_dump() if isinstance(knob, BaseModel) else knob for name, knob in chosen.items()}
    values["algorithm"] = {"name": experiment.algorithm.name} | plain
    return {name: value for name, value in values.items() if value != {}}


def _usual(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


@cache
def code_of_numbers() -> str:
    """A hash of the code that decides numbers; comments, docstrings and empty lines are not part of it."""
    package = files("manyheads")
    found = hashlib.sha256()
    for name in DECIDES_NUMBERS:
        for path, text in sorted(_sources(package.joinpath(name), name)):
            found.update(f"{path}\n{bare(text)}".encode())
    return found.hexdigest()[:16]


def first_like(code: str) -> str:
    """The oldest version that gives the same numbers."""
    return next((versions[0] for versions in SAME_NUMBERS if code in versions), code)


def same_numbers(code: str) -> bool:
    """Whether today's code would make what this code made."""
    return first_like(code) == first_like(code_of_numbers())


def _sources(place: Traversable, path: str) -> Iterable[tuple[str, str]]:
    if place.is_file():
        yield path, place.read_text(encoding="utf-8")
        return
    for inside in place.iterdir():
        if inside.is_dir() or inside.name.endswith(".py"):
            yield from _sources(inside, f"{path}/{inside.name}")


def bare(source: str) -> str:
    """Source code without comments, docstrings and empty lines; the same under every version of Python."""
    lines = source.split("\n")
    for node in walk(parse(source)):
        first = node.body[0] if isinstance(node, Module | ClassDef | FunctionDef) and node.body else None
        if isinstance(first, Expr) and isinstance(first.value, Constant) and isinstance(first.value.value, str):
            assert first.end_lineno is not None
            lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT and lines[row - 1]:
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def read_results(folder: Path, scale: str) -> Stored:
    """All that is stored for a scale."""
    found: Stored = {}
    for path in sorted((folder / scale).glob("*.json")):
        try:
            result = Result.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            continue  # another command has just replaced it
        except ValidationError as error:
            problem = error.errors()[0]
            if problem["type"] == "extra_forbidden":
                raise RunError(
                    f'{path}: has "{problem["loc"][-1]}", which this version of manyheads does not know; take a newer '
                    "one, or another folder with --results"
                ) from None
            raise RunError(
                f"{path}: not the result of a cell ({problem['msg']}); remove it to run the cell again"
            ) from None
        found[result.key, result.seed] = result
    return found


def write_result(folder: Path, result: Result) -> Path:
    """Under a name that a person can find; it replaces what earlier code made of the same cell."""
    path = folder / result.scale / f"{slug(result.cell)}-seed-{result.seed}-{result.key[:6]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(result.as_stored(), indent=1) + "\n").encode())
    for other in path.parent.glob(f"*-seed-{result.seed}-{result.key[:6]}.json"):
        with contextlib.suppress(FileNotFoundError):  # another command may do the same
            if other != path and _is_older(other, path, result.key):
                other.unlink()
    return path


def _is_older(other: Path, path: Path, key: str) -> bool:
    """Whether a file is an earlier result of the same cell, as another reproduction called it."""
    same: bool = json.loads(other.read_bytes()).get("key") == key
    return same and other.stat().st_mtime_ns < path.stat().st_mtime_ns


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

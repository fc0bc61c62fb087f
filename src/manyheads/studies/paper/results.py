"""Stored results: one small JSON file for each finished cell and seed.

A result belongs to a configuration (without where the data lie, and how often to save and evaluate) and to the code
that decides numbers. Its key is a hash of what differs from defaults, so a new knob does not change the keys of old
cells.
"""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from manyheads.config.experiment import Experiment
from manyheads.errors import RunError
from manyheads.files import read_file, write_whole
from manyheads.runs.events import judged_after
from manyheads.runs.manifest import Manifest
from manyheads.runs.read import read_events, read_summary
from manyheads.runs.summary import Deploy
from manyheads.studies.paper.code_of_numbers import code_of_numbers
from manyheads.studies.paper.keys import cell_key, non_default_keys, slug

STORED = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
ByHead = Annotated[list[float], Field(min_length=1)]


class ClientAccuracies(BaseModel):
    """The accuracies of one client, by head."""

    model_config = STORED
    backbone: str
    width: int | None
    private_accuracy: ByHead
    shared_accuracy: ByHead


class CellResult(BaseModel):
    """A finished cell for one seed.

    Accuracies are fractions by head and means over clients, except those of `clients`.
    """

    model_config = STORED
    cell: str  # its name in the reproduction that ran it first
    scale: str
    seed: int
    key: str  # of its configuration
    code: str  # of the code that decides numbers
    experiment: dict[str, Any]  # what differs from defaults
    data: str | None  # a hash of the data
    version: str
    torch: str
    hardware: str
    rounding: str | None = None  # a fingerprint; None on a GPU, and in results of earlier versions
    engine: str
    precision: str
    seconds: float
    private_accuracy: ByHead
    shared_accuracy: ByHead
    validation: dict[str, list[float]] | None
    by_hop: dict[str, list[float]]
    after: dict[str, list[float]]  # state of the algorithm -> shared accuracy of the main head of each client
    probe: list[float] | None
    private_with_prior: ByHead | None = None  # of balanced models; None in results of earlier versions, as is `deploy`
    deploy: Deploy | None = None  # heads recommended on the validation part
    bytes_received: list[int]
    collapsed: list[list[int]]
    clients: list[ClientAccuracies]

    @field_validator("experiment")
    @classmethod
    def _of_sections(cls, given: dict[str, Any]) -> dict[str, Any]:
        if not all(isinstance(given.get(name, {}), dict) for name in ("data", "algorithm")):
            raise ValueError("a section holds something else than keys")
        return given

    def differing_measures(self, other: "CellResult") -> list[str]:
        """Return the names of the measures that differ, comparing every number as it is stored."""
        one, two = self.as_stored(), other.as_stored()
        older = self.deploy is None or other.deploy is None  # it lacks what earlier versions did not store
        return [name for name in MEASURED if not (older and name in MAY_LACK) and one.get(name) != two.get(name)]

    def largest_difference(self, other: "CellResult", names: Iterable[str]) -> float:
        """Return the largest difference of any accuracy in the named measures."""
        names = set(names)
        one, two = (
            _fractions({name: value for name, value in result.as_stored().items() if name in names})
            for result in (self, other)
        )
        return max(abs(one[place] - two[place]) for place in one.keys() & two.keys())

    @property
    def made_by(self) -> str:
        """Name everything besides the code on which the last bits may depend."""
        how = f" (rounding {self.rounding})" if self.rounding else ""
        return f"{self.hardware}{how}, {self.engine} engine, {self.precision}, torch {self.torch}"

    def rounds_like(self, other: "CellResult") -> bool:
        """Return whether the same code gives the same bits there: by fingerprint if both have one, else by name."""
        asked = self.rounding is not None and other.rounding is not None
        same = self.rounding == other.rounding if asked else self.hardware == other.hardware
        return same and (self.engine, self.precision, self.torch) == (other.engine, other.precision, other.torch)

    def as_stored(self) -> dict[str, Any]:
        """Return the content of the file; numbers have five decimals."""
        without = {name for name in MAY_LACK if getattr(self, name) is None}
        text = self.model_dump_json(exclude={"experiment", *without})
        values: dict[str, Any] = json.loads(text, parse_float=lambda number: round(float(number), 5))
        return values | {"experiment": self.experiment}

    @property
    def intended_data(self) -> str:
        """Name the data that the cell is meant to read: cells of one table may read different sets."""
        return str({key: self.experiment.get("data", {}).get(key) for key in ("label", "public")})


MEASURED = (
    "private_accuracy", "private_with_prior", "shared_accuracy", "validation", "deploy", "by_hop", "after", "probe",
    "bytes_received", "collapsed", "clients",
)  # fmt: skip
MAY_LACK = ("rounding", "private_with_prior", "deploy")  # results of earlier versions have none
Stored = dict[tuple[str, int], CellResult]  # by key and seed


def _fractions(measured: Any, place: str = "") -> dict[str, float]:
    """Return all fractions by their place in the result; counts are whole numbers."""
    if isinstance(measured, dict | list):
        inside = measured.items() if isinstance(measured, dict) else enumerate(measured)
        return {at: found for key, part in inside for at, found in _fractions(part, f"{place}/{key}").items()}
    return {place: measured} if isinstance(measured, float) else {}


def result_of(
    experiment: Experiment, folder: Path, *, cell: str, scale: str, hardware: str, rounding: str | None
) -> CellResult:
    """Return what is stored about a finished run."""
    summary, events = read_summary(folder), read_events(folder)
    return CellResult(
        cell=cell,
        scale=scale,
        seed=experiment.seed,
        key=cell_key(experiment),
        code=code_of_numbers(),
        experiment=non_default_keys(experiment),
        data=Manifest.unseal(folder / "checkpoints" / "manifest.json").data,
        hardware=hardware,
        rounding=rounding,
        after={
            after: [by_head[0] for by_head in event.shared_accuracy] for after, event in judged_after(events).items()
        },
        clients=[
            ClientAccuracies(**own.model_dump(include=set(ClientAccuracies.model_fields))) for own in summary.clients
        ],
        deploy=summary.deploy,
        validation=None if summary.validation is None else summary.validation.model_dump(exclude_none=True),
        **summary.model_dump(include=_COPIED_FROM_SUMMARY),
    )


_COPIED_FROM_SUMMARY = {
    "version", "torch", "engine", "precision", "seconds", "private_accuracy", "private_with_prior", "shared_accuracy",
    "by_hop", "probe", "bytes_received", "collapsed",
}  # fmt: skip


def read_results(folder: Path, scale: str) -> Stored:
    """Read all stored results of a scale."""
    found: Stored = {}
    for path in sorted((folder / scale).glob("*.json")):
        try:
            result = CellResult.model_validate_json(read_file(path, follow=True))
        except FileNotFoundError:
            continue  # another command has just replaced it
        except ValidationError as error:
            problem = error.errors()[0]
            if problem["type"] == "extra_forbidden":
                raise RunError(
                    f'{path}: has "{problem["loc"][-1]}", which this version of manyheads does not know; use a newer '
                    "one, or another folder with --results"
                ) from None
            raise RunError(
                f"{path}: not the result of a cell ({problem['msg']}); remove it to run the cell again"
            ) from None
        found[result.key, result.seed] = result
    return found


def write_result(folder: Path, result: CellResult) -> Path:
    """Write a result to a file with a readable name; replace an earlier result of the same cell."""
    path = folder / result.scale / f"{slug(result.cell)}-seed-{result.seed}-{result.key[:6]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(result.as_stored(), indent=1) + "\n").encode())
    for other in path.parent.glob(f"*-seed-{result.seed}-{result.key[:6]}.json"):
        with contextlib.suppress(FileNotFoundError):  # another command may do the same
            if other != path and _is_older(other, path, result.key):
                other.unlink()
    return path


def remove_results(folder: Path) -> None:
    """Remove what is stored in a folder; any other file stays."""
    for path in folder.glob("*.json"):
        if _key_in(path) is not None:
            path.unlink(missing_ok=True)


def _is_older(other: Path, path: Path, key: str) -> bool:
    """Return whether a file is an earlier result of the same cell, which another reproduction may have named."""
    return _key_in(other) == key and other.stat().st_mtime_ns < path.stat().st_mtime_ns


def _key_in(path: Path) -> str | None:
    """Return the key of the result in a file; None if it does not hold one."""
    try:
        return CellResult.model_validate_json(read_file(path)).key
    except (OSError, ValidationError):
        return None

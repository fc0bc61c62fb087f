"""The key of a cell: a hash of its configuration."""

import dataclasses
import hashlib
import json
import re
from typing import Any

from pydantic import BaseModel

from manyheads.config.as_printed import KNOBS, without_printed
from manyheads.config.experiment import Experiment
from manyheads.config.knobs import make_knobs


def cell_key(experiment: Experiment) -> str:
    """Return a hash of everything in a configuration that decides numbers, except the seed."""
    values = {name: value for name, value in non_default_keys(experiment).items() if name != "seed"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def non_default_keys(experiment: Experiment) -> dict[str, Any]:
    """Return the keys that differ from their printed defaults and decide numbers: no paths, no intervals of saves."""
    differing = experiment.model_dump(exclude_none=True, exclude_defaults=True)
    values = without_printed(differing, experiment.model_dump())
    values["data"].pop("path", None)
    if isinstance(values["data"].get("public"), dict):
        values["data"]["public"].pop("path", None)
    for section, name in (
        ("training", "save_seconds"),
        ("training", "log_every"),
        ("evaluate", "every"),
        ("evaluate", "relations"),
    ):
        values.get(section, {}).pop(name, None)
    made = make_knobs(experiment.algorithm)
    printed = {field.name: _plain(_default(field)) for field in dataclasses.fields(made)}
    printed |= KNOBS.get(experiment.algorithm.name, {})
    knobs = {field.name: _plain(getattr(made, field.name)) for field in dataclasses.fields(made)}
    chosen = {name: knob for name, knob in knobs.items() if knob != printed[name]}
    values["algorithm"] = {"name": experiment.algorithm.name} | chosen
    return {name: value for name, value in values.items() if value != {}}


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _plain(knob: Any) -> Any:
    return knob.model_dump() if isinstance(knob, BaseModel) else knob


def slug(text: str) -> str:
    """Return text as a file name: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

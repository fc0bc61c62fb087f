"""Messages about a wrong configuration: one line that names the key and what is allowed."""

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import (
    BaseModel,
    ValidationError,
)

from manyheads.config.types import T
from manyheads.errors import ConfigurationError
from manyheads.printable import shortened


def build_section(kind: type[T], values: Mapping[str, Any], section: str) -> T:
    """Make a checked value of the dataclass `kind` from the keys of a section; errors name the key as the file does."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    known = {section: sorted(field.name for field in fields)}
    for field in fields:
        if isinstance(field.type, type) and issubclass(field.type, BaseModel):
            known |= known_keys(field.type, f"{section}.{field.name}")
    try:
        return kind(**values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, known, section)) from None
    except TypeError as error:  # a plain dataclass of somebody else's
        raise ConfigurationError(f"{section}: {error}; known: {', '.join(known[section])}") from None


def nearest(given: str, allowed: Iterable[str]) -> str:
    """Return `did you mean ...?` and, if it is short, the list of what is allowed."""
    allowed = sorted(allowed)
    known = f"known: {', '.join(allowed)}" if allowed else "there are no keys here"
    close = difflib.get_close_matches(given.lower(), allowed, n=1)
    if not close:
        return known
    return f'did you mean "{close[0]}"?' + (f" ({known})" if len(allowed) <= 8 else "")


def explain(error: ValidationError, known: Mapping[str, list[str]], section: str = "") -> str:
    """Return one line for the first problem: the key, what was given, what is allowed."""
    unknown = ("extra_forbidden", "unexpected_keyword_argument")
    missing = ("missing", "missing_argument")
    # An unknown key is often why another one is missing.
    order = {kind: rank for rank, kinds in ((0, unknown), (2, missing)) for kind in kinds}
    problems = sorted(error.errors(include_url=False), key=lambda problem: order.get(problem["type"], 1))
    first = problems[0]
    path = [section] if section else []
    path += [str(part) for part in first["loc"] if not str(part).startswith("(")]  # not the tags of a choice
    key, more = ".".join(path), f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] in unknown:
        elsewhere = [f"{at}.{path[-1]}" for at, keys in known.items() if at and path[-1] in keys]
        hint = f"did you mean {elsewhere[0]}?" if elsewhere else nearest(path[-1], known.get(".".join(path[:-1]), []))
        return f"{key}: unknown key; {hint}{more}"
    if first["type"] == "model_type":
        example = f"[{key}] with name = {_shown(first['input'])}" if key in ("graph", "algorithm") else f"[{key}]"
        return f"{key} = {_shown(first['input'])}: is a section; write {example}{more}"
    if first["type"] in missing:
        hint = 'say where samples come from: source = "digits", or "folder" with a path' if path[0] == "data" else ""
        return f"{'data.source' if key == 'data' else key}: missing; {hint or 'give a value'}{more}"
    message = str(first.get("ctx", {}).get("error", first["msg"]))
    message = message[:1].lower() + message[1:]
    if isinstance(first["input"], Mapping | BaseModel) or type(first["input"]).__name__ == "ArgsKwargs":
        return f"{key}: {message}{more}" if key else f"{message}{more}"
    return f"{key} = {_shown(first['input'])}: {message}{more}"


def _shown(value: object) -> str:
    return shortened(json.dumps(value, default=str), 60)


def known_keys(kind: type[BaseModel], prefix: str = "") -> dict[str, list[str]]:
    """Return the keys of each section, by its dotted path."""
    keys = {prefix: sorted(kind.model_fields)}
    for name, field in kind.model_fields.items():
        for inner in _sections(field.annotation):
            keys |= known_keys(inner, f"{prefix}.{name}".strip("."))
    return keys


def _sections(annotation: object) -> list[type[BaseModel]]:
    """Return the sections that a field may hold: one, or several in a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]

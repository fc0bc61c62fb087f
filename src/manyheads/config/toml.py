"""TOML files and `--set key.path=value`."""

import tomllib
from pathlib import Path
from typing import Any

from manyheads.errors import ConfigurationError
from manyheads.files import read_file
from manyheads.printable import shortened

MAX_LEVELS, MAX_BYTES = 16, 8 << 20
MAX_DOTS = 10_000  # in a line: what Python needs for a key grows with the square of its parts
TOO_DEEP, TOO_LARGE = f"nested more than {MAX_LEVELS} levels deep", "a number of more than 64 bits"
TOO_LONG = f"more than {MAX_BYTES >> 20} MB"
TOO_DOTTED = "too many dots in a line; a key has few parts, and of a long list each value stands in a line of its own"


def read_text(path: Path) -> str:
    """Return the text of a configuration file, or raise an error that says in one line why it cannot be read."""
    if path.is_dir():
        inside = path / "experiment.toml"
        hint = f"its experiment is {inside}; continue it with: manyheads resume {path}" if inside.exists() else ""
        raise ConfigurationError(f"{path}: is a folder; {hint or 'give a TOML file'}")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError(f"{path}: {TOO_LONG}, which no experiment needs")
        return read_file(path, follow=True).decode()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not a text file") from None


def parse(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. A ValueError says in one line why it cannot be an experiment."""
    if len(text) > MAX_BYTES:
        raise ValueError(TOO_LONG)
    if sum(line.count(".") ** 2 for line in text.split("\n")) > MAX_DOTS**2:
        raise ValueError(TOO_DOTTED)
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python reads numbers of 4,300 digits
        raise ValueError(TOO_LARGE) from None
    check_values(values)
    return values


def check_values(values: dict[str, Any]) -> None:
    """Raise a ValueError if values are nested too deeply, or a number is too large, for what reads them later."""
    level: list[tuple[str, Any]] = list(values.items())
    for _ in range(MAX_LEVELS):
        for key, value in level:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(f"{key}: {TOO_LARGE}")
        level = [inner for key, value in level for inner in _inside(key, value)]
    if level:
        raise ValueError(TOO_DEEP)


def _inside(key: str, value: object) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{key}.{name}", inner) for name, inner in value.items()]
    return [(key, inner) for inner in value] if isinstance(value, list) else []


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set the key that an override `key.path=value` names."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigurationError(f"--set {shortened(override)}: write it as key.path=value")
    value = _value(text, override)
    *sections, key = path.strip().split(".")
    if len(sections) >= MAX_LEVELS:
        raise ConfigurationError(f"--set {shortened(override)}: {TOO_DEEP}")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"--set {shortened(override)}: {section} is not a section")
    if sets_name(override) and values.get(key) not in (None, value):
        values.clear()
    values[key] = value


def _value(text: str, override: str) -> Any:
    """Return the value of an override, written as in TOML; a bare word is a string: --set graph.name=cycle."""
    try:
        values = parse(f"value = {text}")
    except ValueError as error:
        word, toml = text.strip(), isinstance(error, tomllib.TOMLDecodeError)
        if toml and word[:1] not in ("{", "[", '"', "'") and len(word.splitlines()) < 2:
            return word
        raise ConfigurationError(f"--set {shortened(override)}: the value is not valid TOML: {error}") from None
    if len(values) > 1:
        raise ConfigurationError(f"--set {shortened(override)}: several lines; give each key a --set of its own")
    return values["value"]


def sets_name(override: str) -> bool:
    """Return whether an override sets the name of an algorithm, a graph or an assignment, which has keys of its own."""
    path = override.partition("=")[0].strip()
    return path.endswith(".assignment") or (path.endswith(".name") and not path.startswith("data."))


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {k: without_none(v) if isinstance(v, dict) else v for k, v in values.items() if v is not None}

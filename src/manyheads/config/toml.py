"""TOML files and `--set key.path=value`."""

import tomllib
from pathlib import Path
from typing import Any

from manyheads.errors import ConfigurationError
from manyheads.files import read_file


def read_text(path: Path) -> str:
    """The text of a configuration file, or one line that says why there is none."""
    if path.is_dir():
        inside = path / "experiment.toml"
        hint = f"its experiment is {inside}; go on with it by: manyheads resume {path}" if inside.exists() else ""
        raise ConfigurationError(f"{path}: is a folder; {hint or 'give a TOML file'}")
    try:
        return read_file(path, follow=True).decode()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not a text file") from None


def apply_override(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigurationError(f"--set {override}: write it as key.path=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        value = text.strip()  # a bare word is a string: --set graph.name=cycle
        if value[:1] in ("{", "[", '"', "'"):
            raise ConfigurationError(f"--set {override}: the value is not valid TOML: {error}") from None
    *sections, key = path.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"--set {override}: {section} is not a section")
    if names_an_entry(override) and values.get(key) not in (None, value):
        values.clear()
    values[key] = value


def names_an_entry(override: str) -> bool:
    path = override.partition("=")[0].strip()
    return path.endswith(".assignment") or (path.endswith(".name") and not path.startswith("data."))


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {k: without_none(v) if isinstance(v, dict) else v for k, v in values.items() if v is not None}

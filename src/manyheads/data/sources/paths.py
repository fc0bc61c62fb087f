"""Paths of sources, and errors about those that lead nowhere."""

from pathlib import Path

from manyheads.config.data import SourceConfig
from manyheads.errors import ConfigurationError, DataError


def path_of(config: SourceConfig) -> Path:
    if config.path is None:
        raise ConfigurationError(
            f'{config.section}.path: missing; {config.section}.source = "{config.source}" reads files, give their path'
        )
    return Path(config.path)


def folder_of(config: SourceConfig) -> Path:
    path = path_of(config)
    if not path.is_dir():
        raise cannot_read(config, path, "is not a folder" if path.exists() else "No such file or directory")
    return path


def where_of(config: SourceConfig, path: Path | str) -> str:
    """Return how a person finds the source."""
    return f'{config.section}.path = "{path}"'


def cannot_read(config: SourceConfig, path: Path, reason: str) -> DataError:
    hint = "" if path.is_absolute() else f" (relative paths count from {Path.cwd()})"
    return DataError(f"{where_of(config, path)}: cannot be read: {reason}{hint}")

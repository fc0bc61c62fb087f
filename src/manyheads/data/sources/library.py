"""Libraries that only some users need, imported when asked for."""

import warnings
from typing import Any

from manyheads.config.data import SourceConfig
from manyheads.errors import ConfigurationError, first_line
from manyheads.imports import import_library


def library(name: str, config: SourceConfig) -> Any:
    """Import a library that only some users need, or raise one line that says how to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn of many things when they are imported
            return import_library(name)
    except Exception as error:  # one that was built for another torch fails in other ways
        reason = (
            "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported: {first_line(error)}"
        )
        raise ConfigurationError(
            f'{config.section}.source = "{config.source}": the library {name} {reason}; '
            f'pip install "manyheads[{config.source}]"'
        ) from None

"""Sources of data: each is a function from a configuration to a listing of its images, and an entry of SOURCES.

`data.loading.load` turns that into arrays of one shape, in memory or mapped from a packed folder.
"""

from collections.abc import Callable
from dataclasses import dataclass

from manyheads.config.data import SourceConfig
from manyheads.config.messages import nearest
from manyheads.data.listing import SourceListing
from manyheads.data.sources.folders import clients, folder
from manyheads.data.sources.hub import huggingface
from manyheads.data.sources.numpy_arrays import digits, npz
from manyheads.data.sources.packed_folder import packed
from manyheads.data.sources.paths import cannot_read, path_of
from manyheads.data.sources.vision import torchvision
from manyheads.errors import ConfigurationError


@dataclass(frozen=True)
class Source:
    """A source: its function, and the keys that it reads."""

    find: Callable[[SourceConfig], SourceListing]
    keys: tuple[str, ...]  # the keys of `SourceConfig` that it reads; `classes` goes with every source
    reads_files: bool = True  # below `path`, which must therefore exist


SOURCES: dict[str, Source] = {
    "digits": Source(digits, ("path",), reads_files=False),  # which it refuses
    "npz": Source(npz, ("path", "label", "fine_label")),
    "folder": Source(folder, ("path",)),
    "clients": Source(clients, ("path", "label", "fine_label")),
    "torchvision": Source(torchvision, ("path", "name", "download"), reads_files=False),
    "huggingface": Source(
        huggingface,
        ("path", "name", "download", "label", "fine_label", "train_split", "test_split"),
        reads_files=False,
    ),
    "packed": Source(packed, ("path",)),
}


def check_source(config: SourceConfig) -> None:
    """Raise if `[data]` or `data.public` names what does not exist, or keys that its source does not read."""
    key = config.section
    if config.source not in SOURCES:
        raise ConfigurationError(f'{key}.source = "{config.source}": unknown source; {nearest(config.source, SOURCES)}')
    source = SOURCES[config.source]
    for name in SourceConfig.model_fields:
        if name not in ("source", "classes", *source.keys) and getattr(config, name) is not None:
            readers = sorted(other for other, entry in SOURCES.items() if name in entry.keys)
            raise ConfigurationError(
                f'{key}.{name}: {key}.source = "{config.source}" does not read it; it goes with {", ".join(readers)}'
            )
    if source.reads_files and not path_of(config).exists():
        raise cannot_read(config, path_of(config), "No such file or directory")


def list_source(config: SourceConfig) -> SourceListing:
    """Return the listing of the source that `[data]` or `data.public` names, with the classes that are wanted."""
    check_source(config)
    key, found = config.section, SOURCES[config.source].find(config)
    found.check_labels()
    if config.classes is None or found.class_names == tuple(config.classes):
        return found
    if found.train.labels is None:
        raise ConfigurationError(f"{key}.classes: {found.where} has no labels to choose by; leave it out")
    try:
        return found.only(config.classes)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}.{error}") from None

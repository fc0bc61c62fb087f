"""Small images whose brightness shows their class, and helpers that read refusals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from manyheads import ConfigurationError, DataError, Experiment
from manyheads.config.data import DataConfig, SourceConfig
from manyheads.data.arrays import Dataset, Images, ImageSet
from manyheads.data.loading import load
from manyheads.data.sources.library import library
from manyheads.data.views import gather_views, grid_of

SIDE = 20  # grey levels between two classes: twelve of them fit
HEIGHT, WIDTH = 12, 10


def pixels(labels: Sequence[int] | NDArray[np.int64], *, channels: int = 3, seed: int = 0) -> Images:
    """Return an image for each label: as bright as its class, with a little noise, so that no two are the same."""
    rng = np.random.default_rng([seed, channels, len(labels)])
    noise = rng.integers(0, 10, size=(len(labels), HEIGHT, WIDTH, channels))
    images: Images = (noise + 10 + SIDE * np.asarray(labels)[:, None, None, None]).astype(np.uint8)
    return images


def classes_by_brightness(images: Images) -> list[int]:
    """Return the class of each image by its brightness."""
    return [round((float(image.mean()) - 14.5) / SIDE) for image in images]


def picture(
    label: int = 0, *, mode: str = "RGB", seed: int = 0, size: tuple[int, int] = (HEIGHT, WIDTH)
) -> Image.Image:
    """Return one such image in a mode of Pillow's, of a height and width."""
    image = Image.fromarray(pixels([label], seed=seed)[0]).resize(size[::-1], Image.Resampling.NEAREST)
    if mode == "P":
        return image.convert("P", palette=Image.Palette.ADAPTIVE)
    return image.convert("L").convert(mode) if mode in ("1", "L", "LA", "I") else image.convert(mode)


def class_folders(
    root: Path,
    counts: Mapping[str, int],
    *,
    suffix: str = ".png",
    mode: str = "RGB",
    seed: int = 0,
    numbers: Mapping[str, int] | None = None,
) -> Path:
    """Write ROOT/CLASS/0.png, ...; the brightness of a class is its number, or its place in the alphabet."""
    number = numbers or {name: at for at, name in enumerate(sorted(counts))}
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for at in range(count):
            options: dict[str, Any] = {"quality": 95} if suffix == ".jpg" else {}
            made = picture(number[name], mode=mode, seed=1000 * seed + 100 * number[name] + at)
            made.save(root / name / f"{at}{suffix}", **options)
    return root


def data(**values: Any) -> DataConfig:
    """Return `[data]` as an experiment's file would give it, so that a wrong key ends in one line, too."""
    return Experiment(clients=1, data={key: str(v) if isinstance(v, Path) else v for key, v in values.items()}).data


def used(part: ImageSet) -> tuple[Images, list[int]]:
    """Return the images that are not left out, and their labels."""
    return np.asarray(part.images)[part.used], part.known_labels[part.used].tolist()


def refusal(config: DataConfig | Callable[[], object]) -> str:
    """Return the one line that loading, or another call, ends in."""
    with pytest.raises((DataError, ConfigurationError)) as error:
        load(config) if isinstance(config, DataConfig) else config()
    assert "\n" not in str(error.value)
    return str(error.value)


def check_line(line: str, *texts: object) -> None:
    """Check that a line contains all of some texts."""
    for text in texts:
        assert str(text) in line, f"{text!s} is not in: {line}"


def same(one: Dataset, other: Dataset) -> None:
    """Check that two data sets use the same samples."""
    assert one.class_names == other.class_names
    assert one.client_names == other.client_names
    assert (one.public is None) == (other.public is None)
    for mine, theirs in ((one.train, other.train), (one.test, other.test), (one.public_set, other.public_set)):
        assert np.array_equal(np.asarray(mine.images)[mine.used], np.asarray(theirs.images)[theirs.used])
        for kind in ("labels", "fine", "owners"):
            known, equal = getattr(mine, kind), getattr(theirs, kind)
            assert (known is None) == (equal is None)
            assert known is None or known[mine.used].tolist() == equal[theirs.used].tolist(), kind


def everything(paths: Iterable[Path]) -> dict[str, bytes]:
    """Return the content of files, by name."""
    return {path.name: path.read_bytes() for path in paths}


def datasets_below(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the library `datasets`, which caches what it reads: here, not in a home folder."""
    datasets = library_or_skip("datasets", "huggingface")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", path / "cache")
    datasets.disable_progress_bars()
    return datasets


def torchvision_or_skip() -> Any:
    """Return torchvision's data sets; a build for another torch cannot be imported."""
    return library_or_skip("torchvision.datasets", "torchvision")


def library_or_skip(name: str, source: str) -> Any:
    try:
        return library(name, SourceConfig(source=source))
    except ConfigurationError as error:
        pytest.skip(f"{name} cannot be imported here: {error}")


def apply_views(images_BHWC: Tensor, views_BV: Tensor) -> Tensor:
    """Return each image in its view."""
    every = torch.arange(len(images_BHWC), device=images_BHWC.device)
    return gather_views(images_BHWC, every, grid_of(views_BV, *images_BHWC.shape[1:3]))

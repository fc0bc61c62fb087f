"""A picture of ours is replaced by a later one; whatever else has its name is not."""

import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from manyheads import RunError
from manyheads.report.figures import save_figure
from manyheads.report.mark import check_replaceable


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    return tmp_path / "picture.png"


def test_a_picture_of_ours_and_none_at_all(picture: Path) -> None:
    check_replaceable(picture)
    save_figure(Figure(figsize=(1, 1)), picture)
    check_replaceable(picture)
    with Image.open(picture) as image:
        assert image.info["Software"] == "manyheads"


@pytest.mark.parametrize("kind", ["text", "picture", "matplotlib", "empty", "link", "folder", "pipe", "nowhere"])
def test_what_is_not_ours(picture: Path, tmp_path: Path, kind: str) -> None:
    if kind == "text":
        picture.write_text("my thesis")
    elif kind == "picture":
        Image.new("L", (2, 2)).save(picture)
    elif kind == "matplotlib":
        Figure(figsize=(1, 1)).savefig(picture)
    elif kind == "empty":
        picture.touch()
    elif kind == "link":
        save_figure(Figure(figsize=(1, 1)), tmp_path / "ours.png")
        picture.symlink_to(tmp_path / "ours.png")
    elif kind == "folder":
        picture.mkdir()
    elif kind == "pipe":
        os.mkfifo(picture)
    else:
        picture.symlink_to(tmp_path / "nothing")
    with pytest.raises(RunError, match=r"picture\.png: is not a picture that manyheads drew, so it is left as it is;"):
        check_replaceable(picture)

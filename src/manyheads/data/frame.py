"""The frame: the common shape that all images get."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from manyheads.data.images import ImageSequence, Unreadable, quietly
from manyheads.errors import DataError

GREY = ("1", "L", "LA", "La")


@dataclass(frozen=True)
class Frame:
    """The shape that every image gets, and how."""

    height: int
    width: int
    channels: int
    fit: Literal["stretch", "crop"] = "stretch"
    any_size: bool = True  # otherwise an image of another size is a mistake
    any_colour: bool = True  # otherwise a colour image among grey ones is

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels

    @property
    def text(self) -> str:
        return f"{self.height} x {self.width} x {self.channels}"

    def read(self, images: ImageSequence, number: int) -> tuple[NDArray[np.uint8], bool]:
        """Return the pixels of an image, and whether it had a palette."""
        pixels = images.pixels(number)
        if pixels is not None and pixels.shape == self.shape:
            return pixels, False
        image = images.open(number, (self.height, self.width) if self.any_size else None)
        palette = image.mode in ("P", "PA")
        image = self._coloured(image)
        if image.size != (self.width, self.height):
            image = self._resized(image)
        return np.asarray(image, dtype=np.uint8).reshape(self.shape), palette

    def _coloured(self, image: Image.Image) -> Image.Image:
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        if self.channels not in (1, 3):
            raise DataError(f"does not have {self.channels} channels as the first image; give data.channels = 1 or 3")
        mode = "L" if self.channels == 1 else "RGB"
        if mode == "L" and image.mode not in GREY and not self.any_colour:
            raise DataError("is in colour, but the first image is grey; say which you want: data.channels = 1 or 3")
        try:
            return image if image.mode == mode else image.convert(mode)
        except ValueError:
            raise Unreadable(f"has mode {image.mode}, which cannot be turned into {mode}") from None

    def _resized(self, image: Image.Image) -> Image.Image:
        if not self.any_size:
            raise DataError(
                f"is {image.height} x {image.width}, the first image {self.height} x {self.width}; "
                "give a common data.size (pack: --size)"
            )
        if self.fit == "crop":
            return ImageOps.fit(image, (self.width, self.height), Image.Resampling.BILINEAR)
        return image.resize((self.width, self.height), Image.Resampling.BILINEAR)


def shape_of(images: ImageSequence) -> tuple[int, int, int]:
    """Return height, width and channels of the first image that can be read."""
    first = images.pixels(0) if len(images) else None
    if first is not None:
        height, width, channels = first.shape
        return height, width, channels
    why = "there are no images"
    for number in range(len(images)):
        try:
            with quietly():
                image = images.open(number, None)
            return image.height, image.width, 1 if image.mode in GREY else 3
        except Unreadable as error:
            why = why if number else f"{images.name(0)}: {error}"
    raise DataError(f"no image can be read: {why}")

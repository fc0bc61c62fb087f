"""Small images of shapes to try manyheads with: one folder per class, or one folder per organisation.

python examples/make_images.py shapes                # shapes/train/circle/0.png, ..., shapes/test/...
python examples/make_images.py hospitals --clients   # hospitals/berlin/train/circle/0.png, ..., hospitals/public/...
"""

import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

# Each shape has a typical colour, as apples and lemons do.
SHAPES = {
    "circle": (220, 60, 60),
    "cross": (60, 190, 80),
    "ring": (70, 100, 230),
    "square": (220, 200, 60),
    "star": (200, 70, 200),
    "triangle": (70, 200, 210),
}
CLIENTS = {  # what each organisation mostly sees
    "berlin": ("circle", "cross", "ring"),
    "paris": ("ring", "square", "star"),
    "rome": ("star", "triangle", "circle"),
}


def picture(shape: str, rng: np.random.Generator) -> Image.Image:
    """Draw one shape of random size and place, in about its colour, on a dark image of random size."""
    side = int(rng.integers(40, 72))
    image = Image.new("RGB", (side, side), tuple(rng.integers(0, 70, size=3).tolist()))
    colour = tuple((SHAPES[shape] + rng.integers(-50, 51, size=3)).clip(0, 255).tolist())
    draw = ImageDraw.Draw(image)
    radius = side * rng.uniform(0.25, 0.4)
    x, y = rng.uniform(radius, side - radius, size=2)
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        draw.ellipse(box, fill=colour)
    elif shape == "ring":
        draw.ellipse(box, outline=colour, width=max(2, int(radius / 3)))
    elif shape == "square":
        draw.rectangle(box, fill=colour)
    elif shape == "cross":
        thick = radius / 3
        draw.rectangle((x - thick, y - radius, x + thick, y + radius), fill=colour)
        draw.rectangle((x - radius, y - thick, x + radius, y + thick), fill=colour)
    else:
        corners = 3 if shape == "triangle" else 10
        radii = [radius if corners == 3 or number % 2 == 0 else radius / 2.4 for number in range(corners)]
        angles = [2 * math.pi * number / corners - math.pi / 2 for number in range(corners)]
        draw.polygon([(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(radii, angles, strict=True)], colour)
    return image


def make(folder: Path, counts: dict[str, int], rng: np.random.Generator) -> None:
    """Make this many images of each shape, in a folder with its name."""
    for shape, count in counts.items():
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture(shape, rng).save(folder / shape / f"{number}.png")


def make_folders(folder: Path, train: int = 150, test: int = 40) -> None:
    """Make a training and a test part, with a folder per shape."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("test", test)):
        make(folder / part, dict.fromkeys(SHAPES, count), rng)


def make_clients(folder: Path, train: int = 150, test: int = 40, public: int = 300) -> None:
    """Make the images of three organisations, which mostly see three shapes each, and unlabelled public images."""
    rng = np.random.default_rng(0)
    for name, often in CLIENTS.items():
        for part, count in (("train", train), ("test", test)):
            make(folder / name / part, {shape: count if shape in often else count // 20 + 1 for shape in SHAPES}, rng)
    (folder / "public").mkdir(parents=True, exist_ok=True)
    for number in range(public):
        picture(rng.choice(list(SHAPES)), rng).save(folder / "public" / f"{number}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", action="store_true", help="one folder per organisation")
    options = parser.parse_args()
    (make_clients if options.clients else make_folders)(options.folder)
    print(f"{options.folder}: {sum(1 for _ in options.folder.rglob('*.png'))} images")


if __name__ == "__main__":
    main()

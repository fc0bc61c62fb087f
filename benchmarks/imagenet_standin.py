"""Pictures of noise with as many classes as ImageNet, for trying the imagenet scale where ImageNet is not at hand.

    python benchmarks/imagenet_standin.py runs/standin.npz
    manyheads pack runs/standin.npz runs/standin
    manyheads reproduce baselines --scale imagenet --data runs/standin --only "s = 100, MHD" --try 4
    manyheads reproduce baselines --scale imagenet --data runs/standin --only "s = 100, MHD"

The last command says how many hours it would take, and then begins; Ctrl-C ends it.
"""

import argparse
from pathlib import Path

import numpy as np

CLASSES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a stand-in for ImageNet, as an .npz file.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--per-class", type=int, default=10, help="training pictures of each class")
    given = parser.parse_args()
    labels = np.tile(np.arange(CLASSES), given.per_class)
    shape = (len(labels), given.size, given.size, 3)
    pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(given.file, x_train=pictures, y_train=labels, x_test=pictures[:CLASSES], y_test=labels[:CLASSES])


if __name__ == "__main__":
    main()

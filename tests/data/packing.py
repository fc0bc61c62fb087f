"""Packing that stops at a chosen moment, or waits there: python -m tests.data.packing FOLDER OUT die|wait IMAGES.

Started by test_pack.py as a process of its own.
"""

import os
import signal
import sys
import time
from pathlib import Path

from manyheads.data import journal, pack, reading
from tests.data.made import data

CHUNK = 4  # images


def main(folder: str, out: str, then: str, images: str) -> None:
    reading.CHUNK, journal.JOURNAL_SECONDS = CHUNK, 0.0

    def progress(done: int, total: int, unreadable: int) -> None:
        if done >= int(images):
            print(done, flush=True)
            if then == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)

    try:
        pack.pack(data(source="folder", path=folder, size=8), Path(out), workers=2, progress=progress)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(*sys.argv[1:])

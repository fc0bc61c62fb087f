"""Pack any source into one folder of arrays that training maps from disk (layout: sources/packed_folder.py).

Images are read in chunks by several processes, which write them at their places. A journal says which chunks are done,
so the same command continues where it was stopped. An image that cannot be read leaves its place empty and is listed.
"""

import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.data import DataConfig, SourceConfig
from manyheads.data.arrays import content_hashes
from manyheads.data.frame import Frame
from manyheads.data.journal import Journal
from manyheads.data.listing import Listing, SourceListing
from manyheads.data.loading import frame_of
from manyheads.data.pack_job import PackJob
from manyheads.data.reading import ReadReport, chunks, palette_note
from manyheads.data.sources import list_source
from manyheads.data.sources.packed_folder import CARD, FORMAT, KINDS, mapped, read_card
from manyheads.errors import ConfigurationError, DataError
from manyheads.files import write_whole
from manyheads.memory import enough_memory

Progress = Callable[[int, int, int], None]  # images done, images in all, of these unreadable


def pack(config: DataConfig, out: Path, *, workers: int, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Pack what `[data]` describes, from where an earlier call was stopped; return the card of the folder."""
    if isinstance(config.public, SourceConfig):
        raise ConfigurationError(
            "data.public: a public set from elsewhere is packed on its own; then name it as "
            'public = { source = "packed", path = ... }'
        )
    found = list_source(config)
    frame = frame_of(config, found)
    parts = {
        name: part.only_kept() for name in ("train", "test", "public") if (part := getattr(found, name)) is not None
    }
    reads_all = config.source in ("folder", "clients")  # these would take the packed folder for a class
    if reads_all and config.path is not None and _is_inside(out, config.path):
        raise DataError(f"{out}: is inside the folder to pack; give another folder")
    job = PackJob(out, frame, {name: part.images for name, part in parts.items()})
    with enough_memory("lower --size or --workers", DataError):
        job.check_room(workers)
    out.mkdir(parents=True, exist_ok=True)
    if (out / CARD).exists():
        raise DataError(f"{out}: is packed already; remove it or give another folder")
    with Journal.opened(out, _fingerprint(found, frame, parts)) as journal:
        for part in job.make_room():
            journal.forget(part)
        _work(job, journal, workers, progress)
        card = _finish(job, journal, found, parts)
    return card


def _is_inside(out: Path, folder: str) -> bool:
    place, above = os.path.realpath(out), os.path.realpath(folder)  # unlike Path.resolve, also of a link to itself
    return place != above and os.path.commonpath([place, above]) == above


def verify(path: Path, progress: Progress = lambda *_: None) -> list[str]:
    """Return the images of a packed folder that have changed since, as `part[number]`."""
    damaged = []
    card = read_card(path)
    total, done = card.images, 0
    for name, part in card.parts.items():
        images, names = (mapped(path, name, kind, part.shapes[kind]) for kind in ("images", "names"))
        kept = set(mapped(path, name, "kept", part.kept).tolist()) if part.kept else None
        for chunk in chunks(len(images)):
            now = content_hashes(images[chunk.start : chunk.stop])
            wrong = chunk.start + np.flatnonzero(now != names[chunk.start : chunk.stop])
            damaged += [f"{name}[{number}]" for number in wrong.tolist() if kept is None or number in kept]
            done += len(chunk)
            progress(done, total, len(damaged))
    return damaged


_job: PackJob | None = None  # of a worker process


def _begin(job: PackJob) -> None:
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one decides
    warnings.simplefilter("ignore")  # what Pillow says of odd files
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this worker when its parent is gone: it would wait for work for ever."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _fill(part: str, chunk: range) -> tuple[ReadReport, str]:
    assert _job is not None
    state = _job.state(part, chunk)  # before it is read: a later change shows
    return _job.fill(part, chunk), state


def _work(job: PackJob, journal: "Journal", workers: int, progress: Progress) -> None:
    """Fill every chunk that the journal lacks, several at a time."""
    every = [(part, chunk) for part, images in job.images.items() for chunk in chunks(len(images))]
    total, done = sum(len(chunk) for _, chunk in every), 0
    todo = []
    for part, chunk in every:
        if journal.knows(job, part, chunk):
            done += len(chunk)
        else:
            todo.append((part, chunk))
    progress(done, total, journal.unreadable())
    running: dict[Future[tuple[ReadReport, str]], tuple[str, range]] = {}
    with _executor(job, workers) as pool:
        try:
            while todo or running:
                while todo and len(running) < 2 * workers:
                    part, chunk = todo.pop(0)
                    running[pool.submit(_fill, part, chunk)] = (part, chunk)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    part, chunk = running.pop(future)
                    journal.add(job, part, chunk, *future.result())
                    done += len(chunk)
                    progress(done, total, journal.unreadable())
        except BrokenProcessPool:
            raise DataError(
                f"{job.out}: a worker was killed, perhaps because memory ran out; the same command continues, "
                "perhaps with fewer --workers"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            journal.flush(job)


@contextlib.contextmanager
def _executor(job: PackJob, workers: int) -> Iterator[ProcessPoolExecutor]:
    # A fork starts at once and inherits the list of images; it runs decoders only. Elsewhere than on Linux it may not.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        yield ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(job,))


def _finish(job: PackJob, journal: Journal, found: SourceListing, parts: dict[str, Listing]) -> dict[str, Any]:
    """Write labels and the like beside the pixels, and the card last."""
    described, lost, palette = {}, [], []
    for name, part in parts.items():
        unreadable, with_palette = journal.problems(name)
        gone = np.array([number for number, _ in unreadable], dtype=np.int64)
        kept = np.setdiff1d(np.arange(len(part.images)), gone) if len(gone) else None
        if kept is not None and len(kept) == 0:
            raise DataError(f"{part.images.name(0)}: {unreadable[0][1]}; no image of the {name} part can be read")
        arrays = {"labels": part.labels, "fine": part.fine, "owners": part.owners, "kept": kept}
        shapes = {"images": [len(part.images), *job.frame.shape], "names": [len(part.images)]}
        for kind, array in arrays.items():
            if array is not None:
                buffer = io.BytesIO()
                np.save(buffer, array)
                write_whole(job.file(name, kind), buffer.getvalue())
                shapes[kind] = list(array.shape)
        described[name] = {kind: shapes[kind] for kind in KINDS if kind in shapes}
        lost += [{"part": name, "image": part.images.name(number), "why": why} for number, why in unreadable]
        palette += [part.images.name(number) for number in with_palette]
    card = {
        "format": FORMAT,
        "name": found.name,
        "classes": list(found.class_names),
        "named": found.named,
        "clients": list(found.client_names),
        "parts": described,
        "notes": [*found.notes, *palette_note(palette)],
        "unreadable": lost,
    }
    write_whole(job.out / CARD, json.dumps(card, indent=1).encode())
    return card


def _fingerprint(found: SourceListing, frame: Frame, parts: dict[str, Listing]) -> str:
    """Return a hash of what is packed into what, so that an unfinished packing of other data is not continued."""
    digest = hashlib.sha256(f"{frame} {found.class_names} {found.client_names}".encode(errors="surrogateescape"))
    for name, part in parts.items():
        digest.update(f"{name} {len(part.images)}".encode())
        for array in (part.labels, part.fine, part.owners):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()

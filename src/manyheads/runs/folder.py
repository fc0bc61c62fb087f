"""The run folder: events, checkpoints, summary.

experiment.toml  complete, with defaults
metrics.jsonl    a line per event
relations.json   pairs of clients, as last measured: if there are few clients, or on request
summary.json     written when the run has ended
checkpoints/     the last save

A file is written under a temporary name, flushed and renamed, so it is never seen half written. What a killed run wrote
into metrics.jsonl after its last save is cut off on resuming.
"""

import json
from pathlib import Path
from typing import ClassVar

from manyheads.config.experiment import Experiment
from manyheads.errors import START_AGAIN, RunError
from manyheads.files import new_folder, write_whole
from manyheads.runs.checkpoints import Checkpoints
from manyheads.runs.events import Event
from manyheads.runs.manifest import CHECKPOINT_FORMAT, CHECKPOINTS, Manifest, digest_of_keys, last_save
from manyheads.runs.metrics import MetricsFile
from manyheads.runs.read import check_new_folder, read_events, read_relations
from manyheads.runs.record import GetStates, Saved
from manyheads.runs.relations import Relations
from manyheads.runs.remove import remove_run
from manyheads.runs.summary import Summary


class RunFolder:
    """A run on disk, held by one process at a time."""

    lasting: ClassVar[bool] = True

    def __init__(self, path: Path, data_fingerprint: str) -> None:
        self.path = path
        self._experiment, self._data = digest_of_keys(path / "experiment.toml"), data_fingerprint
        self._checkpoints = Checkpoints(path)
        self._metrics = MetricsFile(path / "metrics.jsonl")
        self.saved_step: int | None = None

    @classmethod
    def create(cls, path: Path, experiment: Experiment, data_fingerprint: str) -> "RunFolder":
        """Make a new run folder; a folder that already holds anything is refused."""
        check_new_folder(path)
        with new_folder(path) as beside:
            (beside / CHECKPOINTS).mkdir()
            write_whole(beside / "experiment.toml", experiment.as_file())
        return cls(path, data_fingerprint)

    def events(self) -> list[Event]:
        return read_events(self.path)

    def close(self) -> None:
        self._metrics.close()

    def event(self, event: Event) -> None:
        """Append a line to metrics.jsonl."""
        values = {"event": event.event, **event.model_dump(exclude_none=True)}
        self._metrics.append(json.dumps(values, allow_nan=False).encode() + b"\n")

    def save(self, step: int, seconds: float, states: GetStates) -> None:
        """Write a checkpoint, then remove the files that only the previous one needs."""
        metrics = self._metrics.sync()
        found = states(self._checkpoints.files)
        self._metrics.check_place()
        clients, files = self._checkpoints.write(step, *found)
        self._metrics.check_place()
        self._checkpoints.commit(
            Manifest(
                format=CHECKPOINT_FORMAT,
                experiment=self._experiment,
                data=self._data,
                step=step,
                seconds=seconds,
                metrics_bytes=self._metrics.size,
                metrics_sha256=metrics,
                clients=clients,
                files=files,
            )
        )
        self.saved_step = step

    def restore(self) -> Saved | None:
        """Return the last save and cut metrics.jsonl back to it; None if there is none, so the run begins again."""
        self._metrics.check_place()
        manifest = last_save(self.path)
        if manifest is None:
            self._metrics.cut(0)
            self._checkpoints.sweep({})
            self._checkpoints.refuse_later(-1)
            return None
        if manifest.data != self._data:
            raise RunError(f"{self.path}: the data have changed since this run was started; {START_AGAIN}")
        self._metrics.check(manifest.metrics_bytes, manifest.metrics_sha256)
        clients, snapshots = self._checkpoints.read(manifest)
        self._metrics.cut(manifest.metrics_bytes)
        self._checkpoints.sweep(manifest.files)
        self._checkpoints.refuse_later(manifest.step)
        self.saved_step = manifest.step
        return Saved(manifest.step, manifest.seconds, clients, snapshots)

    def keep_relations(self, relations: Relations) -> None:
        self._metrics.check_place()
        write_whole(self.path / "relations.json", json.dumps(relations.model_dump(), allow_nan=False).encode())

    def keep_trace(self, trace: bytes) -> None:
        self._metrics.check_place()
        write_whole(self.path / "trace.json", trace)

    def relations(self) -> Relations | None:
        return read_relations(self.path)

    def finish(self, summary: Summary) -> None:
        self._metrics.check_place()
        write_whole(self.path / "summary.json", json.dumps(summary.model_dump(), indent=1, allow_nan=False).encode())

    def remove(self) -> None:
        """Remove the run, which this process still holds."""
        self._metrics.check_place()
        remove_run(self.path)
        self.close()

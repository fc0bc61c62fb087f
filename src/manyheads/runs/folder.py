"""The run folder: events, checkpoints, summary.

experiment.toml            complete, with defaults
metrics.jsonl              a line per event
summary.json               written when the run has ended
checkpoints/manifest.json  the last save: step, checksums of its files, cut of metrics.jsonl
checkpoints/state-*        one client's weights and momentum at that step
checkpoints/snapshot-*     an entry of some pool; immutable, written once, shared by all pools that show it

Every file appears under its final name at once and whole: it is written beside it, flushed and renamed. Metrics are
appended line by line with one system call each; what a killed run wrote after its last save is cut off on resuming.
"""

import fcntl
import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import safetensors
import safetensors.torch
from torch import Tensor

from manyheads.client.state import ClientState
from manyheads.config.experiment import Experiment
from manyheads.errors import START_AGAIN, RunError
from manyheads.files import digest, write_whole
from manyheads.runs.events import Event
from manyheads.runs.manifest import FORMAT, ClientRecord, Manifest, digest_of_keys
from manyheads.runs.read import check_free, read_events
from manyheads.runs.record import GetStates, Saved
from manyheads.runs.tensors import read_tensors


class RunFolder:
    """A run on disk, held by one process at a time."""

    lasting: ClassVar[bool] = True

    def __init__(self, path: Path, data_fingerprint: str) -> None:
        self.path = path
        self._experiment, self._data = digest_of_keys(path / "experiment.toml"), data_fingerprint
        self._checkpoints = path / "checkpoints"
        self._checkpoints.mkdir(exist_ok=True)
        self._files: dict[str, str] = {}  # files of the last save and their checksums
        self.saved_step: int | None = None
        self._metrics = os.open(path / "metrics.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._metrics, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._metrics)
            raise RunError(f"{path}: another process is running this experiment; wait for it or stop it") from None
        os.register_at_fork(after_in_child=partial(_let_go, weakref.ref(self)))
        self._metrics_digest = hashlib.sha256()
        self._metrics_bytes = 0

    @classmethod
    def create(cls, path: Path, experiment: Experiment, data_fingerprint: str) -> "RunFolder":
        """A new run folder; one that holds anything already is refused."""
        check_free(path)
        beside = path.with_name(f".{path.name}.partial")
        if beside.exists():  # left by a run that was killed at this very place
            shutil.rmtree(beside)
        (beside / "checkpoints").mkdir(parents=True)
        write_whole(beside / "experiment.toml", str(experiment).encode())
        os.replace(beside, path)
        return cls(path, data_fingerprint)

    def events(self) -> list[Event]:
        return read_events(self.path)

    def close(self) -> None:
        if self._metrics >= 0:
            os.close(self._metrics)
            self._metrics = -1

    def event(self, event: Event) -> None:
        """Append a line to metrics.jsonl."""
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        left = memoryview(line)
        while left:  # one call, unless the disk takes only a part
            left = left[os.write(self._metrics, left) :]
        self._metrics_digest.update(line)
        self._metrics_bytes += len(line)

    def save(self, step: int, seconds: float, states: GetStates) -> None:
        """Write a checkpoint, then let go of the files of the one before."""
        os.fsync(self._metrics)
        clients, snapshots = states(self._files)
        used = {name for client in clients for name in client.pool}
        written = {name: self._files.get(name) or self._write(name, snapshots[name]) for name in sorted(used)}
        records = []
        for index, client in enumerate(clients):
            state = f"state-{step:08d}-client-{index:04d}.safetensors"
            written[state] = self._write(state, client.tensors, {"layout": client.layout})
            records.append(ClientRecord(state=state, pool=client.pool, bytes_received=client.bytes_received))
        manifest = Manifest(
            format=FORMAT,
            experiment=self._experiment,
            data=self._data,
            step=step,
            seconds=seconds,
            metrics_bytes=self._metrics_bytes,
            metrics_sha256=self._metrics_digest.hexdigest(),
            clients=records,
            files=written,
        )
        write_whole(self._checkpoints / "manifest.json", manifest.seal().encode())
        self._files, self.saved_step = written, step
        self._sweep()

    def restore(self) -> Saved | None:
        """The last save, to which metrics.jsonl is cut back; None where there is none: from the beginning."""
        path = self._checkpoints / "manifest.json"
        if not path.exists():
            self._cut_metrics(0)
            self._sweep()
            return None
        manifest = Manifest.unseal(path)
        if manifest.experiment != self._experiment:
            raise RunError(
                f"{path}: is a checkpoint of another experiment than {self.path / 'experiment.toml'}; "
                "put the original file back, or start a new run"
            )
        if manifest.data != self._data:
            raise RunError(f"{path}: the data have changed since this run was started; {START_AGAIN}")
        self._check_metrics(manifest)
        loaded = {name: self._read(name, checksum) for name, checksum in manifest.files.items()}
        clients = [ClientState(loaded[own.state], "", own.pool, own.bytes_received) for own in manifest.clients]
        snapshots = {name: tensors for name, tensors in loaded.items() if name.startswith("snapshot-")}
        self._files, self.saved_step = dict(manifest.files), manifest.step
        self._cut_metrics(manifest.metrics_bytes)
        self._sweep()
        return Saved(manifest.step, manifest.seconds, clients, snapshots)

    def finish(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.path / "summary.json", json.dumps(summary, indent=1, allow_nan=False).encode())

    def _write(self, name: str, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> str:
        content = safetensors.torch.save(dict(tensors), metadata)
        write_whole(self._checkpoints / name, content)
        return digest(content)

    def _read(self, name: str, checksum: str) -> dict[str, Tensor]:
        return read_tensors(self._checkpoints / name, checksum)

    def _check_metrics(self, manifest: Manifest) -> None:
        content = os.pread(self._metrics, manifest.metrics_bytes, 0)
        if digest(content) != manifest.metrics_sha256:
            raise RunError(f"{self.path / 'metrics.jsonl'}: is not what the checkpoint knows; {START_AGAIN}")

    def _cut_metrics(self, size: int) -> None:
        os.ftruncate(self._metrics, size)
        content = os.pread(self._metrics, size, 0)
        self._metrics_digest, self._metrics_bytes = hashlib.sha256(content), size

    def _sweep(self) -> None:
        """Remove what no save points at: older states, replaced snapshots, half-written files of a killed save."""
        for path in self._checkpoints.iterdir():
            if path.is_file() and path.name != "manifest.json" and path.name not in self._files:
                path.unlink()


def _let_go(folder: "weakref.ref[RunFolder]") -> None:
    """In a fork: a worker that outlives its run for a moment must not keep others out."""
    held = folder()
    if held is not None:
        held.close()

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
import tomllib
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import safetensors
import safetensors.torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from manyheads.client import Client, Origin
from manyheads.errors import ConfigurationError, RunError
from manyheads.experiment import Experiment
from manyheads.files import digest, write_whole
from manyheads.snapshot import Snapshot, checkpoint

FORMAT = 3
MEMORY = "memory "  # before the names of what an algorithm keeps of a client
Event = dict[str, Any]


class ClientRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    state: str
    pool: list[str]
    bytes_received: int


class Manifest(BaseModel):
    """A checkpoint: what was saved, and the checksum of each of its files."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: int
    experiment: str
    data: str
    step: int
    seconds: float
    metrics_bytes: int
    metrics_sha256: str
    clients: list[ClientRecord]
    files: dict[str, str]

    def seal(self) -> str:
        """Its text, with a checksum of its own."""
        body = self.model_dump()
        return json.dumps({**body, "sha256": digest(_canonical(body))}, indent=1)

    @classmethod
    def unseal(cls, path: Path) -> "Manifest":
        try:
            body = json.loads(path.read_bytes())
            checksum = body.pop("sha256")
            manifest = cls.model_validate(body)
        except (ValueError, KeyError, AttributeError, TypeError, ValidationError, OSError):
            raise RunError(f"{path}: not a readable checkpoint; {START_AGAIN}") from None
        if checksum != digest(_canonical(manifest.model_dump())):
            raise RunError(f"{path}: was changed after it was written; {START_AGAIN}")
        if any(Path(name).name != name for name in manifest.files):
            raise RunError(f"{path}: names a file outside its own folder; {START_AGAIN}")
        if manifest.format != FORMAT:
            raise RunError(f"{path}: has format {manifest.format}; this version of manyheads reads format {FORMAT}")
        return manifest


SUMMARY_KEYS = {
    "algorithm", "seed", "steps", "seconds", "private_accuracy", "shared_accuracy", "clients", "bytes_received",
    "classes", "image_shape", "deploy", "data", "version",
}  # fmt: skip
START_AGAIN = "start the run again in another folder"


@dataclass(frozen=True)
class ClientState:
    """All of a client that changes while it trains, on the CPU: what a save keeps, and what moves a client."""

    tensors: dict[str, Tensor]
    layout: str  # of its flat tensor, as JSON
    pool: list[str]  # names of the snapshots in its pool
    bytes_received: int


Snapshots = dict[str, dict[str, Tensor]]  # the tensors of snapshots, by name


@dataclass(frozen=True)
class Saved:
    """A run at an edge: enough to go on from there."""

    step: int
    seconds: float
    clients: list[ClientState]
    snapshots: Snapshots


GetStates = Callable[[Container[str]], tuple[list[ClientState], Snapshots]]  # without the snapshots that are known


class Record(Protocol):
    """Where a run writes down what happens."""

    lasting: ClassVar[bool]  # whether it outlives this process, so that saves are always of use
    saved_step: int | None  # of the last save

    def event(self, event: Event) -> None: ...

    def events(self) -> list[Event]:
        """All so far."""

    def save(self, step: int, seconds: float, states: GetStates) -> None: ...

    def restore(self) -> Saved | None:
        """The last save, to which events are cut back; None where there is none: from the beginning."""

    def finish(self, summary: Mapping[str, Any]) -> None: ...


class InMemory:
    """The record of a run without a folder: its events and the last save, if there ever was one."""

    lasting: ClassVar[bool] = False

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._cut = 0
        self._saved: Saved | None = None
        self.saved_step: int | None = None

    def event(self, event: Event) -> None:
        self._events.append(event)

    def events(self) -> list[Event]:
        return list(self._events)

    def save(self, step: int, seconds: float, states: GetStates) -> None:
        known = self._saved.snapshots if self._saved else {}
        clients, new = states(frozenset(known))  # names only: an engine sends them to its crews
        used = {name for client in clients for name in client.pool}
        snapshots = {name: new[name] if name in new else known[name] for name in sorted(used)}
        self._saved, self._cut, self.saved_step = Saved(step, seconds, clients, snapshots), len(self._events), step

    def restore(self) -> Saved | None:
        del self._events[self._cut :]
        return self._saved

    def finish(self, summary: Mapping[str, Any]) -> None:
        pass


class RunFolder:
    """A run on disk, held by one process at a time."""

    lasting: ClassVar[bool] = True

    def __init__(self, path: Path, data_fingerprint: str) -> None:
        self.path = path
        self._experiment, self._data = _written(path / "experiment.toml"), data_fingerprint
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


def _written(path: Path) -> str:
    """A hash of the file's own keys: one that a later version adds changes nothing.

    How often to save and where the data lie are not part of it; of what is in them there is another hash.
    """
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    values.get("training", {}).pop("save_seconds", None)
    data = values.get("data", {})
    for part in (data, data.get("public")):
        if isinstance(part, dict):
            part.pop("path", None)
    return digest(json.dumps(values, sort_keys=True).encode())


def _let_go(folder: "weakref.ref[RunFolder]") -> None:
    """In a fork: a worker that outlives its run for a moment must not keep others out."""
    held = folder()
    if held is not None:
        held.close()


def check_free(path: Path) -> None:
    """Refuse a folder that holds anything."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        unfinished = (path / "experiment.toml").exists() and not (path / "summary.json").exists()
        hint = f"; go on with it by: manyheads resume {path}; or" if unfinished else ";"
        raise RunError(f"{path}: exists already{hint} remove it, or give another folder (on the command line: --out)")


def read_experiment(folder: Path) -> Experiment:
    """The experiment of a run folder."""
    path = folder / "experiment.toml"
    if not path.is_file():
        raise RunError(f"{folder}: not a run folder (it has no experiment.toml)")
    return Experiment.load(path)


def read_events(folder: Path) -> list[Event]:
    """The events of a run folder, finished or not."""
    path = folder / "metrics.jsonl"
    try:
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]  # a run that was just killed may have left half a line
        return [json.loads(line) for line in whole.splitlines()]
    except OSError:
        raise RunError(f"{folder}: not a run folder (it has no metrics.jsonl)") from None
    except ValueError:
        raise RunError(f"{path}: holds a line that is not JSON") from None


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a finished run."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text())
    except OSError:
        if (folder / "experiment.toml").is_file():
            raise RunError(f"{folder}: this run has not ended; go on with: manyheads resume {folder}") from None
        seeds = sorted(path.parent for path in folder.glob("seed-*/experiment.toml"))
        hint = f"it holds several seeds; name one, such as {seeds[0]}" if seeds else "it has no summary.json"
        raise RunError(f"{folder}: not a run folder ({hint})") from None
    except ValueError:
        raise RunError(f"{path}: not valid JSON") from None
    if not isinstance(summary, dict) or SUMMARY_KEYS - summary.keys():
        raise RunError(f"{path}: not the summary of a run")
    return summary


def read_client_values(folder: Path, client: int) -> tuple[dict[str, Tensor], Manifest]:
    """The saved tensors of one client at the last save."""
    manifest = Manifest.unseal(folder / "checkpoints" / "manifest.json")
    if not 0 <= client < len(manifest.clients):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(manifest.clients) - 1}")
    name = manifest.clients[client].state
    return read_tensors(folder / "checkpoints" / name, manifest.files[name]), manifest


def states_of(
    clients: Sequence[Client], known: Container[str], *, pools: bool = True
) -> tuple[list[ClientState], Snapshots]:
    """The states of clients, and the snapshots in their pools that are not `known`; a run that has ended needs none."""
    states, snapshots = [], dict[str, dict[str, Tensor]]()
    for client in clients:
        entries = {_name(entry): entry for entry in client.pool.entries} if pools else {}
        for name, entry in entries.items():
            if name not in known and name not in snapshots:
                snapshots[name] = _on_cpu(entry.tensors())
        memory = {f"{MEMORY}{name}": tensor for name, tensor in client.memory.items()}
        tensors = _on_cpu({**checkpoint(client.state), "momentum": client.momentum, **memory})
        pool = [_name(entry) for entry in client.pool.entries] if pools else []
        states.append(ClientState(tensors, json.dumps(client.state.describe()), pool, client.bytes_received))
    return states, snapshots


def restore_client(client: Client, state: ClientState, where: str) -> None:
    """Put a client, without its pool, back to a state."""
    tensors, expected = state.tensors, {**checkpoint(client.state), "momentum": client.momentum}
    memory = {name.removeprefix(MEMORY): tensor for name, tensor in tensors.items() if name.startswith(MEMORY)}
    fits = len(tensors) == len(expected) + len(memory) and all(
        name in tensors and tensors[name].shape == own.shape and tensors[name].dtype == own.dtype
        for name, own in expected.items()
    )
    if not fits:
        raise RunError(f"{where}: does not fit the model of {client.name}; {START_AGAIN}")
    client.state.load(tensors["values"], {name: tensors[f"integer {name}"] for name in client.state.integers})
    client.momentum.copy_(tensors["momentum"])
    client.memory = {name: tensor.to(client.momentum.device) for name, tensor in memory.items()}
    client.bytes_received = state.bytes_received


def restored_snapshot(name: str, tensors: Mapping[str, Tensor], origins: Sequence[Origin]) -> Snapshot:
    """The reverse of `Snapshot.tensors`, wherever its client lives."""
    _, step, _, client = name.removesuffix(".safetensors").split("-")
    return origins[int(client)].restored(int(step), tensors)


def _name(snapshot: Snapshot) -> str:
    """Of a snapshot's file."""
    return f"snapshot-{snapshot.step:08d}-client-{snapshot.client:04d}.safetensors"


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


def read_tensors(path: Path, checksum: str) -> dict[str, Tensor]:
    """A safetensors file that is what it was when it was written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}; {START_AGAIN}") from None
    if digest(content) != checksum:
        raise RunError(f"{path}: is damaged or was changed (its checksum differs); {START_AGAIN}")
    try:
        return dict(safetensors.torch.load(content))
    except safetensors.SafetensorError as error:
        raise RunError(f"{path}: not a safetensors file: {error}") from None


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True).encode()

"""The checkpoints of a run: files that are written once, and the manifest that points at them.

manifest.json  the last save: step, checksums of its files, length of metrics.jsonl
state-*        one client's weights, momentum and memory at that step
snapshot-*     an entry of a pool; immutable, written once, shared by all pools that hold it
saving.json    while a save is under way: the names of its files and of those of the save before

Only files that one of the two JSON files names are ever removed (saved_files.py).
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import safetensors.torch
from torch import Tensor

from manyheads.client.state import ClientState, Snapshots
from manyheads.errors import RunError
from manyheads.files import digest, refuse_link, write_whole
from manyheads.runs.manifest import CHECKPOINTS, FILE_NAME, MANIFEST, ClientRecord, Manifest, state_name
from manyheads.runs.saved_files import note_names, noted_names, remove_files
from manyheads.runs.tensors import read_state


class Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, run: Path) -> None:
        self._path = run / CHECKPOINTS
        refuse_link(self._path)
        self._path.mkdir(exist_ok=True)
        self.files: dict[str, str] = {}  # the files of the last save, with their checksums

    def write(
        self, step: int, clients: Sequence[ClientState], snapshots: Snapshots
    ) -> tuple[list[ClientRecord], dict[str, str]]:
        """Write all states, and the snapshots that are new; return what the manifest says about them."""
        states = {state_name(step, number): client for number, client in enumerate(clients)}
        shown = sorted({name for client in clients for name in client.pool})
        self._refuse_others({*shown, *states} - self.files.keys())
        note_names(self._path, {*self.files, *shown, *states})
        files = {name: self.files.get(name) or self._write(name, snapshots[name]) for name in shown}
        for name, client in states.items():
            files[name] = self._write(name, client.tensors, {"layout": client.layout})
        records = [
            ClientRecord(state=name, pool=client.pool, bytes_received=client.bytes_received, refused=client.refused)
            for name, client in states.items()
        ]
        return records, files

    def commit(self, manifest: Manifest) -> None:
        """Make this the last save, and remove the files that only the previous one needs."""
        write_whole(self._path / MANIFEST, manifest.seal().encode())
        self.sweep(manifest.files)

    def read(self, manifest: Manifest) -> tuple[list[ClientState], Snapshots]:
        """Return the clients' states and the snapshots of a save."""
        loaded = {name: read_state(self._path / name, checksum) for name, checksum in manifest.files.items()}
        clients = [
            ClientState(loaded[own.state], "", own.pool, own.bytes_received, own.refused) for own in manifest.clients
        ]
        return clients, {name: tensors for name, tensors in loaded.items() if name.startswith("snapshot-")}

    def refuse_later(self, step: int) -> None:
        """Refuse files that are named like those of a later save: it would find them in its place."""
        found = {path.name: FILE_NAME.fullmatch(path.name) for path in self._path.iterdir()}
        self._refuse_others({name for name, parts in found.items() if parts and int(parts[2]) > step})

    def sweep(self, kept: Mapping[str, str]) -> None:
        """Remove the files that only an earlier save named, and what a killed save left half written."""
        remove_files(self._path, {*self.files, *noted_names(self._path)} - kept.keys())
        self.files = dict(kept)

    def _refuse_others(self, names: Collection[str]) -> None:
        """Refuse to replace what lies where new files are to be."""
        there = [path for path in (self._path / name for name in sorted(names)) if os.path.lexists(path)]
        if there:
            more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
            raise RunError(f"{there[0]}: is named like a file of a save that is still to come; move it away{more}")

    def _write(self, name: str, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> str:
        content = safetensors.torch.save(dict(tensors), metadata)
        write_whole(self._path / name, content)
        return digest(content)

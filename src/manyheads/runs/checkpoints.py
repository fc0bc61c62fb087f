"""The checkpoints of a run: files that are written once, and the manifest that points at them.

manifest.json  the last save: step, checksums of its files, length of metrics.jsonl
state-*        one client's weights and momentum at that step
snapshot-*     an entry of a pool; immutable, written once, shared by all pools that hold it
saving.json    while a save is under way: the names of its files and of those of the save before

Only files that one of the two JSON files names are ever removed (saved_files.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
from torch import Tensor

from manyheads.client.state import ClientState, Snapshots
from manyheads.files import digest, refuse_link, write_whole
from manyheads.runs.manifest import CHECKPOINTS, MANIFEST, ClientRecord, Manifest, state_name
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

    def sweep(self, kept: Mapping[str, str]) -> None:
        """Remove the files that only an earlier save named, and what a killed save left half written."""
        remove_files(self._path, {*self.files, *noted_names(self._path)} - kept.keys())
        self.files = dict(kept)

    def _write(self, name: str, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> str:
        content = safetensors.torch.save(dict(tensors), metadata)
        write_whole(self._path / name, content)
        return digest(content)

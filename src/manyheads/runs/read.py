"""Reading run folders; no tensor is needed for that."""

import json
from pathlib import Path
from typing import Any

from manyheads.config.experiment import Experiment
from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError
from manyheads.files import GIVE_ANOTHER, read_file, refuse_link
from manyheads.runs.events import Event

LONGEST_SHOWN = 60  # of what was given
SUMMARY_KEYS = {
    "algorithm", "seed", "steps", "seconds", "private_accuracy", "shared_accuracy", "clients", "bytes_received",
    "classes", "image_shape", "deploy", "data", "version",
}  # fmt: skip


def check_free(path: Path) -> None:
    """Refuse a folder that holds anything, and what is not the name of a new one."""
    if path.name in ("", "..") or (path.exists() and path.samefile(Path.cwd())):
        raise RunError(f"{path}: is no name for a new folder; give one, such as runs/mine (on the command line: --out)")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        unfinished = (path / "experiment.toml").exists() and not (path / "summary.json").exists()
        hint = f"; go on with it by: manyheads resume {path}; or" if unfinished else ";"
        raise RunError(f"{path}: exists already{hint} {GIVE_ANOTHER}")
    refuse_link(path)


def check_no_run(path: Path) -> None:
    """Refuse a run folder where a folder for several runs is needed."""
    if (path / "experiment.toml").exists():
        raise RunError(f"{path}: is itself a run; give another folder (on the command line: --out)")


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
        text = read_file(path, follow=True).decode()
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
        summary = json.loads(read_file(path, follow=True))
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


def client_number(folder: Path, client: int | str) -> int:
    """Of a client of a finished run, which may be named."""
    names = [own["name"] for own in read_summary(folder)["clients"]]
    if isinstance(client, str):
        if client not in names:
            shown = client if len(client) <= LONGEST_SHOWN else f"{client[:LONGEST_SHOWN]}..."
            raise ConfigurationError(f'client = "{shown}": not in this run; {nearest(shown, names)}')
        return names.index(client)
    if not 0 <= client < len(names):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(names) - 1}")
    return client

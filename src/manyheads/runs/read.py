"""Reading run folders, without torch.

>>> import tempfile
>>> from manyheads import Experiment, train
>>> training = {"steps": 1, "warmup_steps": 0, "batch_size": 8, "public_batch_size": 8}
>>> tiny = Experiment(clients=2, data={"source": "digits"}, model={"width": 2}, training=training)
>>> with tempfile.TemporaryDirectory() as folder:
...     run = train(tiny, f"{folder}/run", progress=False).folder
...     [client.name for client in read_summary(run).clients]
...     [event.event for event in read_events(run)]
['client-0', 'client-1']
['start', 'losses', 'evaluation', 'taught']
"""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from manyheads.config.experiment import Experiment
from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError
from manyheads.files import GIVE_ANOTHER, read_file, refuse_link
from manyheads.printable import shortened
from manyheads.runs.events import ANY_EVENT, EvaluationEvent, Event, StartEvent
from manyheads.runs.older import old_relations, upgrade_event, upgrade_summary
from manyheads.runs.relations import Relations
from manyheads.runs.stored import parse_json, problem_text, validated
from manyheads.runs.summary import Summary


def check_new_folder(path: Path) -> None:
    """Refuse a folder that already holds anything, and a path that cannot name a new folder."""
    if path.name in ("", "..") or (path.exists() and path.samefile(Path.cwd())):
        raise RunError(f"{path}: cannot name a new folder; give one, such as runs/mine (on the command line: --out)")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        unfinished = (path / "experiment.toml").exists() and not (path / "summary.json").exists()
        hint = f"; continue it with: manyheads resume {path}; or" if unfinished else ";"
        raise RunError(f"{path}: exists already{hint} {GIVE_ANOTHER}")
    refuse_link(path)


def check_no_run(path: Path) -> None:
    """Refuse a run folder as the folder for several runs."""
    if (path / "experiment.toml").exists():
        raise RunError(f"{path}: is itself a run; give another folder (on the command line: --out)")


def read_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run folder."""
    path = folder / "experiment.toml"
    if not path.is_file():
        raise RunError(f"{folder}: not a run folder (it has no experiment.toml)")
    return Experiment.of_run(path)


def read_start(folder: Path) -> StartEvent | None:
    """Return the first event of a run folder; None if it has not been written yet."""
    path = folder / "metrics.jsonl"
    first, end, _ = (_content(path) or b"").partition(b"\n")
    values = parse_json(first, f"{path}: line 1") if end else {}
    return validated(StartEvent, values, f"{path}: line 1") if values.get("event") == "start" else None


def read_events(folder: Path) -> list[Event]:
    """Return the events of a run folder, finished or not."""
    path = folder / "metrics.jsonl"
    events = []
    for number, line in enumerate(_lines(folder), 1):
        where = f"{path}: line {number}"
        try:
            events.append(ANY_EVENT.validate_python(upgrade_event(line, where)))
        except ValidationError as error:
            raise RunError(f"{where}: not what a run writes ({problem_text(error)})") from None
    _check_of_one_run(events, path)
    return events


def read_summary(folder: Path) -> Summary:
    """Return the summary of a finished run."""
    path = folder / "summary.json"
    content = _content(path)
    if content is None:
        if (folder / "experiment.toml").is_file():
            raise RunError(f"{folder}: this run has not ended; continue with: manyheads resume {folder}")
        seeds = sorted(path.parent for path in folder.glob("seed-*/experiment.toml"))
        hint = f"it holds several seeds; name one, such as {seeds[0]}" if seeds else "it has no summary.json"
        raise RunError(f"{folder}: not a run folder ({hint})")
    return validated(Summary, upgrade_summary(parse_json(content, path), path), path)


def client_number(folder: Path, client: int | str) -> int:
    """Return the number of a client of a finished run, given its number or name."""
    names = [own.name for own in read_summary(folder).clients]
    if isinstance(client, str):
        if client not in names:
            shown = shortened(client)
            raise ConfigurationError(f'client = "{shown}": not in this run; {nearest(shown, names)}')
        return names.index(client)
    if not 0 <= client < len(names):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(names) - 1}")
    return client


def read_relations(folder: Path) -> Relations | None:
    """Return what was last measured of pairs of clients; None if it was not asked for."""
    path = folder / "relations.json"
    content = _content(path)
    if content is None:
        return old_relations(_lines(folder), folder / "metrics.jsonl")
    return validated(Relations, parse_json(content, path), path)


def _content(path: Path) -> bytes | None:
    """Return the content of a file; None if nothing is there, or something that is not a file."""
    try:
        return read_file(path, follow=True) if path.is_file() else None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from None


def _lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    content = _content(path)
    if content is None:
        raise RunError(f"{folder}: not a run folder (it has no metrics.jsonl)")
    whole = content[: content.rfind(b"\n") + 1]  # a run that was just killed may have left half a line
    return [parse_json(line, f"{path}: line {number}") for number, line in enumerate(whole.splitlines(), 1)]


def _check_of_one_run(events: list[Event], path: Path) -> None:
    """Raise if events differ in clients or heads: tables and pictures put them side by side."""
    heads = {len(event.private_accuracy[0]) for event in events if isinstance(event, EvaluationEvent)}
    for name, counts in (("clients", {event.clients for event in events} - {None}), ("heads", heads)):
        if len(counts) > 1:
            raise RunError(f"{path}: its events differ in the number of {name}, so they are not from one run")

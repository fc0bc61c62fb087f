"""Reading run folders; no tensor is needed for that."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from manyheads.config.experiment import Experiment
from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError
from manyheads.files import GIVE_ANOTHER, read_file, refuse_link
from manyheads.runs.events import ANY_EVENT, EvaluationEvent, Event, StartEvent
from manyheads.runs.older import relations_of, upgrade_event, upgrade_summary
from manyheads.runs.relations import Relations
from manyheads.runs.stored import check, parse, problem_text
from manyheads.runs.summary import Summary

LONGEST_SHOWN = 60  # of what was given


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


def read_start(folder: Path) -> StartEvent | None:
    """Return the first event of a run folder; None where it was not written yet."""
    path = folder / "metrics.jsonl"
    first, end, _ = (_content(path) or b"").partition(b"\n")
    values = parse(first, f"{path}: line 1") if end else {}
    return check(StartEvent, values, f"{path}: line 1") if values.get("event") == "start" else None


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
            raise RunError(f"{folder}: this run has not ended; go on with: manyheads resume {folder}")
        seeds = sorted(path.parent for path in folder.glob("seed-*/experiment.toml"))
        hint = f"it holds several seeds; name one, such as {seeds[0]}" if seeds else "it has no summary.json"
        raise RunError(f"{folder}: not a run folder ({hint})")
    return check(Summary, upgrade_summary(parse(content, path), path), path)


def client_number(folder: Path, client: int | str) -> int:
    """Of a client of a finished run, which may be named."""
    names = [own.name for own in read_summary(folder).clients]
    if isinstance(client, str):
        if client not in names:
            shown = client if len(client) <= LONGEST_SHOWN else f"{client[:LONGEST_SHOWN]}..."
            raise ConfigurationError(f'client = "{shown}": not in this run; {nearest(shown, names)}')
        return names.index(client)
    if not 0 <= client < len(names):
        raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(names) - 1}")
    return client


def read_relations(folder: Path) -> Relations | None:
    """Return what clients are to each other, pair by pair, as last measured; None where it was not asked for."""
    path = folder / "relations.json"
    content = _content(path)
    if content is None:
        return relations_of(_lines(folder), folder / "metrics.jsonl")
    return check(Relations, parse(content, path), path)


def _content(path: Path) -> bytes | None:
    """Return what a file holds; None where there is none, or something that is no file."""
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
    return [parse(line, f"{path}: line {number}") for number, line in enumerate(whole.splitlines(), 1)]


def _check_of_one_run(events: list[Event], path: Path) -> None:
    """Tables and pictures put events side by side."""
    heads = {len(event.private_accuracy[0]) for event in events if isinstance(event, EvaluationEvent)}
    for name, counts in (("clients", {event.clients for event in events} - {None}), ("heads", heads)):
        if len(counts) > 1:
            raise RunError(f"{path}: its events are of different numbers of {name}, so they are not of one run")

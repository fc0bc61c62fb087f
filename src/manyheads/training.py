"""The loop over windows: train, exchange, evaluate, record, save."""

import contextlib
import itertools
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from manyheads.algorithms.averaging import mean_values
from manyheads.algorithms.base import Neighbours
from manyheads.classifier import Classifier, choose_head
from manyheads.client import Client, learning_rate
from manyheads.engine import ENGINES
from manyheads.engine.base import Window, WindowLosses
from manyheads.ensemble import Ensemble, assemble
from manyheads.errors import ConfigurationError, ManyheadsError, TrainingError
from manyheads.evaluate import Evaluation, Taught, evaluate, who_taught_whom
from manyheads.experiment import Experiment, nearest
from manyheads.judge import probe_all
from manyheads.runs import Event, InMemory, Record, RunFolder, check_free, read_events, read_experiment
from manyheads.snapshot import Snapshot
from manyheads.summary import evaluation_event, start_event, summarise, taught_event

LESSON_SAMPLES = 512  # public samples of each client on which it is counted who taught whom


class Observer(Protocol):
    """Somebody who watches a run: a progress bar, a log, a notebook."""

    def started(self, ensemble: Ensemble, step: int) -> None:
        """Training begins, or goes on, at `step`."""

    def progressed(self, client_steps: int) -> None:
        """So many more steps of clients were taken."""

    def happened(self, event: Event) -> None:
        """A line of metrics.jsonl was written: losses, or an evaluation."""

    def stopping(self) -> None:
        """Somebody asked to stop; the run goes on to the end of its window."""


class Silent:
    """Watches and says nothing."""

    def started(self, ensemble: Ensemble, step: int) -> None:
        pass

    def progressed(self, client_steps: int) -> None:
        pass

    def happened(self, event: Event) -> None:
        pass

    def stopping(self) -> None:
        pass


class Interrupted(ManyheadsError):
    """The run was asked to stop; what it did is saved."""

    def __init__(self, folder: Path | None, step: int) -> None:
        self.folder, self.step = folder, step
        super().__init__(f"stopped at step {step}" + (f"; go on with: manyheads resume {folder}" if folder else ""))


@dataclass(frozen=True)
class Result:
    """A finished run: its clients, in evaluation mode, can be used at once."""

    experiment: Experiment
    clients: list[Client]
    summary: dict[str, Any]
    folder: Path | None
    stop_requested: bool = False  # asked to stop in its last window: it has ended, but what follows should not start

    def classifier(self, client: int = 0, head: int | None = None, task: str = "shared") -> Classifier:
        """One head of a client's model: uint8 images in, logits out. Without `head`: the one recommended for `task`."""
        if not 0 <= client < len(self.clients):
            raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(self.clients) - 1}")
        model, own = self.clients[client].model, self.summary["clients"][client]
        chosen = choose_head(head, task, model.shape_HC[0], own["deploy"])
        height, width, channels = self.summary["image_shape"]
        return Classifier(model, chosen, self.summary["classes"], (height, width, channels))


def train(
    experiment: Experiment | str | Path,
    folder: str | Path | None = None,
    *,
    engine: str = "plain",
    device: str = "cpu",
    observer: Observer | None = None,
) -> Result:
    """Run an experiment (or the TOML file of one) from the beginning; with a folder, record and save it there."""
    if not isinstance(experiment, Experiment):
        experiment = Experiment.load(experiment)
    path = None if folder is None else Path(folder)
    if path is not None:
        check_free(path)
    ensemble = assemble(experiment, device)
    run = _Run(ensemble, _engine_named(engine), observer or Silent(), path)
    if path is None:
        return run.go(InMemory())
    with contextlib.closing(RunFolder.create(path, ensemble.experiment, ensemble.dataset.fingerprint())) as record:
        try:
            return run.go(record)
        except TrainingError:
            if not record.saved:  # a folder from which nothing can go on helps nobody
                shutil.rmtree(path)
            raise


def resume(
    folder: str | Path, *, engine: str | None = None, device: str | None = None, observer: Observer | None = None
) -> Result:
    """Go on with a run that was stopped or killed; it ends as if it had never been.

    On the engine and device that it was started on, unless told otherwise.
    """
    path = Path(folder)
    experiment = read_experiment(path)
    started = next(iter(read_events(path)), {}) if (path / "metrics.jsonl").exists() else {}
    saved = (path / "checkpoints" / "manifest.json").exists()
    ensemble = assemble(experiment, device or started.get("device", "cpu"), pretrained=not saved)
    run = _Run(ensemble, _engine_named(engine or started.get("engine", "plain")), observer or Silent(), path)
    with contextlib.closing(RunFolder(path, ensemble.experiment, ensemble.dataset.fingerprint())) as record:
        run.step, run.seconds_before = record.restore(ensemble.clients)
        if run.step:
            for group in ensemble.groups:
                ensemble.algorithm.resumed(ensemble.clients[group[0]], run.step)
            for event in read_events(path):
                run._remember(event)
        return run.go(record)


def windows(start: int, steps: int, *edges: Iterable[int]) -> Iterator[Window]:
    """From `start` on, the stretches between edges; the last edge is the end."""
    for stop in sorted({steps, *itertools.chain(*edges)}):
        if start < stop <= steps:
            yield Window(start, stop)
            start = stop


def exchange(e: Ensemble, step: int) -> None:
    """The only place where anything crosses between clients, if it is due. All collect before any applies.

    A group averages first; then it meets the others as one, in the person of its first member.
    """
    algorithm, firsts = e.algorithm, [e.clients[group[0]] for group in e.groups]
    if step in e.averaging_steps:
        for group in e.groups:
            average_group([e.clients[member] for member in group], step)
    if step not in e.exchange_steps:
        return

    @cache
    def ask(node: int) -> Snapshot:
        return algorithm.show(firsts[node], step)  # once, however many pools take it

    for client in e.clients:
        algorithm.prepare(client, step)
    received = [
        algorithm.collect(client, Neighbours(e.graph.neighbours(node, step), ask), step)
        for node, client in enumerate(firsts)
    ]
    for client, snapshots in zip(firsts, received, strict=True):
        client.bytes_received += algorithm.cost(client, snapshots)
        algorithm.apply(client, snapshots, step)


def average_group(members: Sequence[Client], step: int) -> None:
    """Equal models become their mean; each receives one."""
    if len(members) == 1:
        return
    shown = [member.snapshot(step) for member in members]
    mean = mean_values(shown)
    for member, snapshot in zip(members, shown, strict=True):
        member.state.take_mean(mean)
        member.bytes_received += snapshot.nbytes


@dataclass
class _Run:
    """One pass through the loop: what has to be remembered from window to window."""

    ensemble: Ensemble
    engine: str
    observer: Observer
    folder: Path | None
    step: int = 0
    seconds_before: float = 0.0
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    last: dict[str, Event] = field(default_factory=dict)

    def go(self, record: Record) -> Result:
        e = self.ensemble
        self.began = time.perf_counter()
        self.observer.started(e, self.step)
        with one_thread(), _stop_requests(self.observer) as stop:
            if self.step == 0:
                self._tell(record, start_event(e, engine=self.engine))
                exchange(e, step=0)
            self._loop(record, stop)
            for part in e.parts:  # a run resumed at its very end was judged before it was saved
                if part.name not in self.evaluations:
                    self.evaluations[part.name] = evaluate(e.clients, part)
            if e.experiment.evaluate.probe:
                self._tell(record, {"event": "probe", "step": self.step, "shared_accuracy": probe_all(e)})
        summary = summarise(e, self.evaluations, self.last, seconds=self._seconds(), engine=self.engine)
        record.finish(summary)
        for client in e.clients:
            client.model.eval()
        return Result(e.experiment, e.clients, summary, self.folder, stop.is_set())

    def _loop(self, record: Record, stop: threading.Event) -> None:
        e, training = self.ensemble, self.ensemble.experiment.training
        every, judged = e.experiment.evaluate.every, e.algorithm.judged_after(training.steps)
        regular = [range(0, training.steps, interval) for interval in (training.log_every, every)]
        engine, saved = ENGINES[self.engine](), time.perf_counter()
        for window in windows(self.step, training.steps, *regular, e.exchange_steps, e.averaging_steps, judged):
            losses = engine.train(e.clients, e.algorithm, window, self.observer.progressed)
            self._check_finite(losses, window)
            self._tell(record, self._losses_event(losses, window))
            self.step = window.stop
            at_end = self.step == training.steps
            exchange(e, self.step)
            if self.step % every == 0 or at_end or self.step in judged:
                self._evaluate(record, judged.get(self.step))
            if at_end or stop.is_set() or time.perf_counter() - saved >= training.save_seconds:
                record.save(self.step, self._seconds(), e.clients, pools=not at_end)
                saved = time.perf_counter()
            if stop.is_set() and not at_end:
                raise Interrupted(self.folder, self.step)

    def _evaluate(self, record: Record, after: str | None) -> None:
        e = self.ensemble
        for part in e.parts:
            evaluation = evaluate(e.clients, part)
            self.evaluations[part.name] = evaluation
            self._tell(record, evaluation_event(evaluation, self.step, after, e.hops(self.step)))
        taught = self._who_taught_whom()
        if taught is not None:
            self._tell(record, taught_event(taught, self.step))

    def _who_taught_whom(self) -> Taught | None:
        """On the first batches since the last exchange: those that tables of predictions can answer, too."""
        e, training = self.ensemble, self.ensemble.experiment.training
        start = max((step for step in e.exchange_steps if step <= self.step), default=training.steps)
        later = min((step for step in e.exchange_steps if step > start), default=training.steps)
        stop = min(start + -(-LESSON_SAMPLES // training.public_batch_size), later)
        return who_taught_whom(e.clients, e.algorithm, start, stop) if start < stop else None

    def _check_finite(self, losses: WindowLosses, window: Window) -> None:
        """Before anything else sees them: the losses of a window, and the weights that it left."""
        clients, advice = self.ensemble.clients, "lower training.learning_rate or lengthen training.warmup_steps"
        bad = (~torch.isfinite(losses.values)).nonzero().tolist()
        if bad:
            client, step, term = min(bad, key=lambda at: (at[1], at[0], at[2]))
            raise TrainingError(
                f"step {window.start + step}, {clients[client].name}: the loss term "
                f'"{losses.terms[term]}" is {losses.values[client, step, term].item()}; {advice}'
            )
        for trained in clients:
            if not torch.isfinite(trained.state.values).all():
                raise TrainingError(f"step {window.stop - 1}, {trained.name}: a weight is not a number; {advice}")

    def _losses_event(self, losses: WindowLosses, window: Window) -> Event:
        mean = losses.values.double().mean(1)
        return {
            "event": "losses",
            "step": window.stop,
            "learning_rate": learning_rate(self.ensemble.experiment.training, window.stop - 1),
            "losses": {term: mean[:, number].tolist() for number, term in enumerate(losses.terms)},
        }

    def _tell(self, record: Record, event: Event) -> None:
        event = {**event, "seconds": round(self._seconds(), 3)}
        record.event(event)
        self._remember(event)
        self.observer.happened(event)

    def _remember(self, event: Event) -> None:
        """The last event of each kind, for the summary."""
        kind = f"after {event['after']} ({event['part']})" if event.get("after") else event["event"]
        self.last[kind] = event

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.began


def _engine_named(name: str) -> str:
    if name not in ENGINES:
        raise ConfigurationError(f"--engine {name}: unknown engine; {nearest(name, ENGINES)}")
    return name


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread a client: small models are slower with more, and results are the same bits on any CPU engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _stop_requests(observer: Observer) -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) asks the loop to stop at the next edge; the second leaves at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def heard(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()
        observer.stopping()

    for number in before:
        signal.signal(number, heard)
    try:
        yield stop
    finally:
        restore()

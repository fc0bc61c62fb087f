"""The loop over windows: train, exchange, evaluate, record, save."""

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from manyheads.client.client import learning_rate
from manyheads.engine import ENGINES
from manyheads.engine.base import Engine, Window, WindowLosses
from manyheads.engine.options import ResolvedOptions
from manyheads.engine.threads import one_thread
from manyheads.errors import LEARN_SLOWER, Interrupted, TrainingError, WorkerLost
from manyheads.evaluation.accuracy import Evaluation, accuracy_on, evaluation_of
from manyheads.evaluation.means import hop_means
from manyheads.evaluation.teacher_tally import TeacherTally
from manyheads.memory import enough_memory
from manyheads.runs.events import Event, LossesEvent, ProbeEvent
from manyheads.runs.record import Record
from manyheads.runs.relations import Relations
from manyheads.setup.build import Ensemble
from manyheads.training.observer import Observer
from manyheads.training.result import Result
from manyheads.training.stop import StopRequest
from manyheads.training.summarise import (
    LatestEvents,
    evaluation_event,
    relations_of,
    start_event,
    summarise,
    taught_event,
)

# Where the time of a run goes; data are part of steps. earlier: until the save from which it was resumed.
TIMES = ("steps", "data", "exchange", "evaluation", "saving", "earlier")
TRACED_STEPS = 2
# The pause after a save is this many times as long as the save, but at most this many times `save_seconds`.
PAUSE_FOR_SAVE, LONGEST_PAUSE = 20, 10
TEACHER_SAMPLES = 512  # public samples of each client on which teachers are counted


def windows(start: int, steps: int, *edges: Iterable[int]) -> Iterator[Window]:
    """Yield the stretches between edges, from `start` on; the last edge is the end."""
    for stop in sorted({steps, *itertools.chain(*edges)}):
        if start < stop <= steps:
            yield Window(start, stop)
            start = stop


@dataclass
class RunLoop:
    """A run, and what has to be remembered from window to window."""

    ensemble: Ensemble
    options: ResolvedOptions
    observer: Observer
    folder: Path | None
    step: int = 0
    seconds_before: float = 0.0
    time: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMES, 0.0))
    lost_at: int | None = -1  # the last save when a worker was lost
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    latest: LatestEvents = field(default_factory=LatestEvents)
    stop: StopRequest = field(init=False)
    stopping_told: bool = False
    taken: int = 0  # client-steps since the last edge
    unwritten: list[Event] = field(default_factory=list)  # since the last edge
    relations: Relations | None = None
    trace: bytes | None = None  # to be written at the next edge

    def run(self, record: Record, *, resumed: bool = False) -> Result:
        """Run from the beginning or from the last save, and again from the last save if a worker is lost."""
        e, announced = self.ensemble, False
        self.began = time.perf_counter()
        self.stop = StopRequest(self._say_stopping)
        with enough_memory(), one_thread(), self.stop:
            while True:
                try:
                    with contextlib.closing(self._engine(record)) as engine:
                        if resumed:
                            self._restore(engine, record)
                        if not announced:
                            self.observer.started(e, self.step)
                            announced = True
                        self._run_to_end(engine, record)
                        engine.fetch_clients()
                    break
                except WorkerLost as lost:
                    self._accept_loss(lost, record)
                    resumed = True
        seconds = self._seconds()
        summary = summarise(e, self.evaluations, self.latest, seconds=seconds, time=self.time, how=self._how(engine))
        record.finish(summary)
        for client in e.clients:
            client.model.eval()
        return Result(e.resolved.experiment, e.clients, summary, self.folder, self.stop.asked, record.relations())

    def _engine(self, record: Record) -> Engine:
        with self._stoppable(record):
            return ENGINES[self.options.engine](self.ensemble, self.options)

    @contextlib.contextmanager
    def _stoppable(self, record: Record, engine: Engine | None = None) -> Iterator[None]:
        """Stop in here as soon as somebody asks: what was done in here is dropped, the edge before it is saved."""
        edge, seconds, self.taken = self.step, self._seconds(), 0
        try:
            with self.stop.interrupts():
                yield
        except BaseException:  # StopNow, or what it was turned into on its way
            if not self.stop.asked or self.stop.leaving:
                raise
            if engine is not None and record.lasting and 0 < edge != record.saved_step:
                self._say_stopping()
                with contextlib.suppress(WorkerLost):
                    record.save(edge, seconds, partial(engine.edge, edge))
            step = (record.saved_step or 0) if record.lasting else edge
            dropped = self.taken + len(self.ensemble.clients) * (edge - step)
            raise Interrupted(self.folder, step, dropped) from None

    def _say_stopping(self) -> None:
        if not self.stopping_told:
            self.stopping_told = True
            self.observer.stopping()

    def _run_to_end(self, engine: Engine, record: Record) -> None:
        e = self.ensemble
        if self.step == 0:
            self._note(start_event(e, self._how(engine)))
            self._record_events(record)
            with self._stoppable(record), self._timed("exchange"):
                engine.exchange(step=0)
        self._loop(engine, record)
        for number, part in enumerate(e.parts):  # a run resumed at its very end was evaluated before it was saved
            if part.name not in self.evaluations:
                with self._stoppable(record):
                    self.evaluations[part.name] = evaluation_of(e.clients, part.name, engine.scores(number))
        if e.resolved.experiment.evaluate.probe:
            with self._stoppable(record):
                self._note(ProbeEvent(step=self.step, shared_accuracy=engine.probes()))
        self._record_events(record)

    def _how(self, engine: Engine) -> dict[str, str]:
        """Return what a record says about the engine, the device and the precision."""
        return {"engine": self.options.engine, "device": engine.device, "precision": self.options.precision}

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.time[name] += time.perf_counter() - begun

    def _restore(self, engine: Engine, record: Record) -> None:
        """Return to the last save, or to the beginning if there is none."""
        saved, self.evaluations, self.latest = record.restore(), {}, LatestEvents()
        self.step, self.seconds_before = (saved.step, saved.seconds) if saved else (0, 0.0)
        self.began, self.unwritten, self.relations, self.trace = time.perf_counter(), [], None, None
        self.time = dict.fromkeys(TIMES, 0.0) | {"earlier": self.seconds_before}
        if saved is not None:
            engine.restore(saved)
            for event in record.events():
                self.latest.remember(event)

    def _accept_loss(self, lost: WorkerLost, record: Record) -> None:
        """Report the loss of a worker, but give up at the second loss without a save in between."""
        if self.lost_at == record.saved_step:
            since = "before the first save" if self.lost_at is None else f"after the save at step {self.lost_at}"
            raise TrainingError(f"{lost}; this is the second loss {since}, so the run gives up") from None
        self.lost_at = record.saved_step
        self.observer.went_back(record.saved_step or 0, str(lost))

    def _loop(self, engine: Engine, record: Record) -> None:
        e, training = self.ensemble, self.ensemble.resolved.experiment.training
        every, judged = e.resolved.experiment.evaluate_every, self._judged()
        regular = [range(0, training.steps, interval) for interval in (training.log_every, every)]
        saved, pause, traced = time.perf_counter(), training.save_seconds, self._traced(regular)
        edges = (*regular, e.resolved.exchange_steps, e.resolved.averaging_steps, judged, traced)
        for window in windows(self.step, training.steps, *edges):
            at_end = window.stop == training.steps
            with self._stoppable(record, engine):
                # Worthwhile only if a stop would otherwise lose more than this window.
                keep = record.lasting and self.stop.heard and 0 < window.start != record.saved_step
                self._train(engine, window, trace=window.start in traced[:1], keep=keep)
                with self._timed("exchange"):
                    engine.exchange(self.step)
                if self.step % every == 0 or at_end or self.step in judged:
                    with self._timed("evaluation"):
                        self._evaluate(engine, judged.get(self.step), by_hop=at_end or e.resolved.measures_relations)
            self._record_events(record)
            due = at_end or self.stop.asked or time.perf_counter() - saved >= pause
            if due and (record.lasting or engine.can_lose_workers):
                before = self.time["saving"]
                with self._timed("saving"):
                    record.save(self.step, self._seconds(), partial(engine.states, pools=not at_end))
                saved, took = time.perf_counter(), self.time["saving"] - before
                usual = training.save_seconds
                pause = min(max(usual, PAUSE_FOR_SAVE * took), LONGEST_PAUSE * usual)
            if self.stop.asked and not at_end:
                raise Interrupted(self.folder, self.step)

    def _train(self, engine: Engine, window: Window, *, trace: bool, keep: bool) -> None:
        """Let all clients take the steps of a window."""
        with self._timed("steps"):
            losses = engine.train(window, self._progressed, trace=trace, keep=keep)
        self.time["data"] += losses.data_seconds
        self.trace = losses.trace or self.trace
        for note in engine.notes():
            self.observer.noted(note)
        self._check_finite(losses, window)
        self._note(self._losses_event(losses, window))
        self.step = window.stop

    def _progressed(self, client_steps: int) -> None:
        self.taken += client_steps
        self.observer.progressed(client_steps)
        self.stop.check()

    def _judged(self) -> dict[int, str]:
        """Return the steps after which states are evaluated: of each state, the last before a regular evaluation."""
        experiment = self.ensemble.resolved.experiment
        states = self.ensemble.resolved.algorithm.extra_evaluations(experiment.training.steps)
        kept = {(after, -(-step // experiment.evaluate_every)): step for step, after in sorted(states.items())}
        return {step: after for (after, _), step in kept.items()}

    def _traced(self, regular: Iterable[Iterable[int]]) -> list[int]:
        """Return the first and the last edge of the profiled steps: after the first window, which warms up."""
        if not self.options.profile:
            return []
        last = self.ensemble.resolved.experiment.training.steps
        first = min((edge for edges in regular for edge in edges if edge > self.step), default=last)
        first = first if first + TRACED_STEPS <= last else self.step
        return [first, first + TRACED_STEPS]

    def _evaluate(self, engine: Engine, after: str | None, *, by_hop: bool) -> None:
        """Evaluate all clients, on the test set last; with `by_hop` each one also on the data of every other."""
        e = self.ensemble
        for number, part in enumerate(e.parts):
            scores = engine.scores(number)
            self.evaluations[part.name] = evaluation = evaluation_of(e.clients, part.name, scores)
            on = accuracy_on(e.clients, scores) if by_hop and part.name == "test" else None
            hops = None if on is None else hop_means(on, e.resolved.hops(self.step))
            self._note(evaluation_event(evaluation, self.step, after, hops))
        taught = self._who_taught_whom(engine)
        if taught is not None:
            self._note(taught_event(taught, self.step))
        if e.resolved.measures_relations:
            self.relations = relations_of(self.step, on, taught)

    def _who_taught_whom(self, engine: Engine) -> TeacherTally | None:
        """Count teachers on the first batches since the last exchange, which tables of predictions can answer, too."""
        e, training = self.ensemble, self.ensemble.resolved.experiment.training
        start = max((step for step in e.resolved.exchange_steps if step <= self.step), default=training.steps)
        later = min((step for step in e.resolved.exchange_steps if step > start), default=training.steps)
        stop = min(start + -(-TEACHER_SAMPLES // training.public_batch_size), later)
        return engine.taught(start, stop) if start < stop else None

    def _check_finite(self, losses: WindowLosses, window: Window) -> None:
        """Raise if a loss of a window, or a weight at its end, is not finite, before anything else sees them."""
        clients, advice = self.ensemble.clients, LEARN_SLOWER
        bad = (~torch.isfinite(losses.values)).nonzero().tolist()
        if bad:
            client, step, term = min(bad, key=lambda at: (at[1], at[0], at[2]))
            raise TrainingError(
                f"step {window.start + step}, {clients[client].name}: the loss term "
                f'"{losses.terms[term]}" is {losses.values[client, step, term].item()}; {advice}'
            )
        for trained, finite in zip(clients, losses.finite, strict=True):
            if not finite:
                raise TrainingError(f"step {window.stop - 1}, {trained.name}: a weight is not finite; {advice}")

    def _losses_event(self, losses: WindowLosses, window: Window) -> Event:
        mean = losses.values.double().mean(1)
        return LossesEvent(
            step=window.stop,
            learning_rate=learning_rate(self.ensemble.resolved.experiment.training, window.stop - 1),
            losses={term: mean[:, number].tolist() for number, term in enumerate(losses.terms)},
        )

    def _note(self, event: Event) -> None:
        event = event.model_copy(update={"seconds": round(self._seconds(), 3)})
        self.unwritten.append(event)
        self.latest.remember(event)
        self.observer.happened(event)

    def _record_events(self, record: Record) -> None:
        """Record the events of a complete edge, of which nothing can be dropped any more."""
        for event in self.unwritten:
            record.event(event)
        if self.relations is not None:
            record.keep_relations(self.relations)
        if self.trace is not None:
            record.keep_trace(self.trace)
        self.unwritten, self.relations, self.trace = [], None, None

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.began

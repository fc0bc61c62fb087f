"""The screen during a run: a progress bar on a terminal or in a notebook, plain lines elsewhere."""

import contextlib
import importlib
import io
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from statistics import mean
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from manyheads.evaluation.means import mean_by_head
from manyheads.printable import printable
from manyheads.report.sentences import collapse_text, models_text
from manyheads.runs.events import EvaluationEvent, Event, LossesEvent, ProbeEvent, StartEvent

if TYPE_CHECKING:
    from manyheads.setup.build import Ensemble

REFRESH_SECONDS = 0.2
STOPPING = "Stopping, and saving the run. Press Ctrl-C again to leave at once."
LINE_SECONDS = 60.0  # at most this long between two plain lines
IMAGES_SECONDS = 10.0


class PlainConsole(Console):
    """A console that prints text as it is: without markup, emoji, or the escape sequences of a name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a cell, header or title of a table; only these may have several lines."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


class Screen:
    """The place for messages and tables; decorated on a terminal, plain with --quiet or elsewhere."""

    def __init__(self, quiet: bool, stream: TextIO | None = None) -> None:
        shown = stream or sys.stdout
        self.decorated = shown is not None and shown.isatty() and not quiet  # None: it is closed
        if isinstance(shown, io.TextIOWrapper):  # a letter that the terminal's encoding lacks must not end the run
            shown.reconfigure(errors="backslashreplace")
        width = None if self.decorated else 200
        self.console = PlainConsole(file=stream, width=width, no_color=not self.decorated, force_jupyter=False)

    def say(self, text: str) -> None:
        self.console.print(printable(text), soft_wrap=not self.decorated)

    def show(self, table: Table) -> None:
        table.box = SIMPLE_HEAD if self.decorated else ASCII2
        if self.decorated:  # narrow enough for 80 columns
            table.collapse_padding, table.pad_edge = True, False
        table.title_justify = "left"
        table.title = printable(str(table.title)) if table.title else None
        self.console.print(table)

    def show_wide(self, header: Sequence[str], lines: Sequence[Sequence[str]], title: str) -> None:
        """Show a table of numbers; if it is wider than the screen, as several tables, each with the first column."""
        first, *rest = ([head, *(line[number] for line in lines)] for number, head in enumerate(header))
        beginning = taken = 3 + max(map(len, first))
        parts: list[list[list[str]]] = [[]]
        for column in rest:
            width = 3 + max([*map(len, column[1:]), *map(len, column[0].split())])  # only headers may be broken
            if parts[-1] and taken + width >= self.console.width:
                parts.append([])
                taken = beginning
            parts[-1].append(column)
            taken += width
        for number, part in enumerate(parts):
            made = Table(first[0], *(head for head, *_ in part), title=None if number else title)
            for line in zip(first[1:], *(column[1:] for column in part), strict=True):
                made.add_row(*line)
            self.show(made)

    def watch(self, title: str) -> "Watcher":
        return Bar(self.console, title) if self.decorated else Lines(self, title)

    @contextlib.contextmanager
    def work(self, title: str, total: float) -> Iterator[Callable[[float], None]]:
        """Show the progress of many runs: as a bar, or a line now and then."""
        if not self.decorated:
            began = said = time.perf_counter()
            sum_done = 0.0

            def line(done: float) -> None:
                nonlocal said, sum_done
                sum_done += done
                now = time.perf_counter()
                if now - said >= LINE_SECONDS and sum_done:
                    said, left = now, (now - began) * (total - sum_done) / sum_done
                    self.say(f"{title}: {100 * sum_done / total:.0f} % of the work is done, {_left(left)}")

            yield line
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
        times = (TextColumn("{task.percentage:3.0f} %,"), TimeRemainingColumn(), TextColumn("left"))
        with Progress(*columns, *times, console=self.console, refresh_per_second=2, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, advance=done)

    @contextlib.contextmanager
    def images(self, title: str, wrong: str) -> Iterator[Callable[[int, int, int], None]]:
        """Show the progress of work on many images: the callback takes the counts of done, all and wrong images."""
        if self.decorated:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f}, {task.fields[wrong]}", markup=False),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.console, refresh_per_second=4, transient=True) as bar:
                task = bar.add_task(title, total=1, wrong="")
                yield lambda done, total, count: bar.update(task, completed=done, total=total, wrong=f"{count} {wrong}")
            return
        said = time.perf_counter()

        def line(done: int, total: int, count: int) -> None:
            nonlocal said
            if time.perf_counter() - said >= IMAGES_SECONDS:
                said = time.perf_counter()
                self.say(f"{title}: {done:,} of {total:,} images, {count} {wrong}")

        yield line


def progress_of(title: str) -> "Watcher":
    """Return an observer that shows a run started from Python, where standard output belongs to the caller.

    In a notebook and in a terminal it is a bar, elsewhere a line now and then; both go to standard error.
    """
    if PlainConsole().is_jupyter:
        return NotebookBar(title)
    return Screen(quiet=False, stream=sys.stderr).watch(title)


class Watcher(ABC):
    """An observer that shows one run: as lines, or as a bar."""

    def __init__(self, title: str) -> None:
        self.title = printable(title)
        self._warned: set[tuple[int, int]] = set()
        self._class_names: tuple[str, ...] = ()
        self.step = self.steps = self._clients = 0
        self._since = 0  # client-steps beyond `step`

    def started(self, ensemble: "Ensemble", step: int) -> None:
        self.step, self.steps = step, ensemble.resolved.experiment.training.steps
        self._clients = ensemble.resolved.experiment.clients
        self._class_names = ensemble.resolved.dataset.class_names
        self.begin(ensemble, step)
        names = [ensemble.resolved.client_name(client) for client in range(self._clients)]
        for line in models_text(names, list(map(str, ensemble.resolved.models))):
            self.line(line)
        empty = [self._class_names[label] for label in ensemble.resolved.classes_without_samples()]
        if empty:
            shown = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
            self.line(f"warning: no client has a private sample of class {shown}; labels count from 0")

    def progressed(self, client_steps: int) -> None:
        self._since += client_steps
        self.advance(client_steps)

    def happened(self, event: Event) -> None:
        self.step, self._since = event.step, 0
        match event:
            case StartEvent():
                for note in event.notes:
                    self.line(f"note: {note}")
            case LossesEvent():
                self.losses({term: mean(values) for term, values in event.losses.items()})
            case EvaluationEvent(part="test"):
                self.evaluation(mean_by_head(event.private_task), mean_by_head(event.shared_accuracy))
                self._warn(event.collapsed)
            case ProbeEvent():
                allowed = 100 * mean(event.shared_accuracy)
                self.line(
                    f"probe: a fresh linear head on the frozen embeddings reaches {allowed:.1f} % shared accuracy"
                )

    def stopping(self) -> None:
        self.line(STOPPING)

    def noted(self, text: str) -> None:
        self.line(f"note: {text}")

    def went_back(self, step: int, why: str) -> None:
        self.line(f"warning: {why}; all clients continue from step {step}")
        self.advance((step - self.step) * self._clients - self._since)
        self.step, self._since = step, 0

    def _warn(self, collapsed: list[list[int]]) -> None:
        """Warn of a collapsed head once, when it is first seen."""
        new = [found for found in collapsed if (found[0], found[1]) not in self._warned]
        self._warned |= {(client, head) for client, head, _ in new}
        for text in collapse_text(new, self._class_names):
            self.line(f"warning: step {self.step}: {text}")

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def line(self, text: str) -> None: ...

    @abstractmethod
    def begin(self, ensemble: "Ensemble", step: int) -> None: ...

    @abstractmethod
    def advance(self, client_steps: int) -> None: ...

    @abstractmethod
    def losses(self, losses: dict[str, float]) -> None: ...

    @abstractmethod
    def evaluation(self, private: list[float], shared: list[float]) -> None: ...


class Lines(Watcher):
    """An observer that prints a plain line at each evaluation."""

    def __init__(self, screen: Screen, title: str) -> None:
        super().__init__(title)
        self._screen = screen
        self._losses: dict[str, float] = {}
        self._began = self._said = time.perf_counter()
        self._first_step = 0

    def begin(self, ensemble: "Ensemble", step: int) -> None:
        self._began = self._said = time.perf_counter()
        self._first_step = step

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def advance(self, client_steps: int) -> None:
        pass

    def line(self, text: str) -> None:
        self._screen.say(text)

    def losses(self, losses: dict[str, float]) -> None:
        self._losses = losses
        now = time.perf_counter()
        if now - self._said >= LINE_SECONDS:
            left = (now - self._began) * (self.steps - self.step) / (self.step - self._first_step)
            self._step_line(_left(left))

    def evaluation(self, private: list[float], shared: list[float]) -> None:
        heads = " ".join(f"{100 * value:.1f}" for value in shared)
        self._step_line(f"private {100 * private[0]:.1f} %, shared by head {heads} %")

    def _step_line(self, text: str) -> None:
        losses = ", ".join(f"{term} {value:.3f}" for term, value in self._losses.items())
        self.line(f"{self.title}: step {self.step}/{self.steps}: {text}; {losses}")
        self._said = time.perf_counter()


class Bar(Watcher):
    """An observer that shows a progress bar with losses, accuracies and the remaining time."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(title)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=20)),
            BarColumn(bar_width=12, table_column=Column(min_width=8)),
            TextColumn("{task.percentage:3.0f} %", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
            TextColumn("left", table_column=Column(no_wrap=True)),
            # The only column that shrinks on a narrow terminal.
            TextColumn(
                "{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            console=console,
            refresh_per_second=4,
            transient=True,
            expand=True,
            redirect_stdout=sys.stdout.isatty(),  # output that goes into a file stays there
        )
        self._task: TaskID | None = None
        self._pending, self._shown = 0, 0.0
        self._losses = self._accuracy = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        self._progress.console.print(printable(text), markup=False, soft_wrap=False)

    def begin(self, ensemble: "Ensemble", step: int) -> None:
        clients = len(ensemble.clients)
        self._task = self._progress.add_task(self.title, total=self.steps * clients, completed=step * clients, state="")

    def advance(self, client_steps: int) -> None:
        self._pending += client_steps
        if time.perf_counter() - self._shown >= REFRESH_SECONDS:
            self._update()

    def _update(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, advance=self._pending, state=f"{self._accuracy}{self._losses}")
            self._pending, self._shown = 0, time.perf_counter()
            self._draw()

    def _draw(self) -> None:
        """Show the bar as it is now; on a terminal a thread does that."""

    def losses(self, losses: dict[str, float]) -> None:
        self._losses = "; ".join(f"{term} {value:.2f}" for term, value in losses.items())

    def evaluation(self, private: list[float], shared: list[float]) -> None:
        self._accuracy = f"private {100 * private[0]:.0f} %, shared {100 * shared[-1]:.0f} %; "


class NotebookBar(Bar):
    """An observer that shows the bar as text below the cell of a notebook, with nothing but IPython."""

    def __init__(self, title: str) -> None:
        super().__init__(PlainConsole(file=io.StringIO(), width=100, no_color=True, force_jupyter=False), title)
        self._cell: Any = None  # IPython's handle of what is displayed

    def __enter__(self) -> Self:
        display = importlib.import_module("IPython.display").display
        self._cell = display(self._as_shown(), raw=True, display_id=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._update()

    def line(self, text: str) -> None:
        print(printable(text))

    def _draw(self) -> None:
        self._cell.update(self._as_shown(), raw=True)

    def _as_shown(self) -> dict[str, str]:
        console = self._progress.console
        with console.capture() as shown:
            console.print(self._progress)
        return {"text/plain": shown.get().rstrip()}


def _left(seconds: float) -> str:
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"

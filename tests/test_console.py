"""The console: what a person sees during a run."""

import contextlib
import io
import sys
import types
from typing import Self

import pytest
from rich.console import Console
from rich.table import Table

from manyheads import Experiment, train
from manyheads.console import STOPPING, Bar, Lines, PlainConsole, Screen, progress_of
from manyheads.report.sentences import collapse_text
from manyheads.runs.events import EvaluationEvent
from manyheads.training.observer import SilentObserver


def test_the_bar_shows_losses_accuracy_and_time_left(tiny: Experiment) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=140)
    with Bar(console, "tiny") as bar:
        train(tiny, observer=bar)
        bar._shown = 0.0  # the next call draws
        bar.progressed(1)
        bar._progress.refresh()
    assert "tiny" in out.getvalue()
    assert "left" in out.getvalue()
    assert "cross_entropy " in out.getvalue()
    assert "private" in out.getvalue()


def test_a_narrow_terminal_keeps_the_time_left() -> None:
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=60), "a-long-name-of-a-run") as bar:
        task = bar._progress.add_task("a-long-name-of-a-run", total=10, completed=5, state="private 98 %; " * 9)
        bar._progress.refresh()
        assert task == 0
    assert " 50 %" in out.getvalue()
    assert "left" in out.getvalue()
    assert "…" in out.getvalue()


def test_plain_lines_come_at_least_every_minute(tiny: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(Screen(quiet=True), "x")
    lines.steps, lines.step = 100, 10
    lines._began -= 90.0
    lines._said -= 90.0
    lines.losses({"cross_entropy": 1.0})
    lines.losses({"cross_entropy": 1.0})
    assert capsys.readouterr().out == "x: step 10/100: about 14 min left; cross_entropy 1.000\n"
    lines.step, lines._said = 75, lines._said - 90.0
    lines.losses({"cross_entropy": 1.0})
    assert "step 75/100: about 30 s left" in capsys.readouterr().out


def test_stopping_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(Screen(quiet=True), "x")
    lines.stopping()
    assert capsys.readouterr().out == STOPPING + "\n"


def test_a_collapsed_head_is_warned_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(Screen(quiet=True), "x")
    lines._class_names = ("cat", "dog")
    event = EvaluationEvent(
        part="test", step=7, private_accuracy=[[0.5, 0.5]], shared_accuracy=[[0.5, 0.5]], collapsed=[[0, 1, 1]]
    )
    lines.happened(event)
    lines.happened(event)
    out = capsys.readouterr().out
    assert out.count("warning") == 1
    assert "warning: step 7: head 1 (aux 1) of client 0 has collapsed onto class dog" in out


def test_collapses_are_grouped_by_head() -> None:
    lines = collapse_text([[0, 3, 5], [1, 3, 5], [2, 0, 1]], [str(c) for c in range(10)])
    assert len(lines) == 2
    assert lines[1].startswith("head 3 (aux 3) of client 0, 1 has collapsed onto class 5")


def test_nothing_but_text_reaches_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is said, shown in a table or used as a title: no escape sequence, line, markup or emoji."""
    name = "a\x1b[2J\x9b\nforged [red][/b] :dog:"
    shown = r"a\x1b[2J\x9b\nforged [red][/b] :dog:"
    screen, table = Screen(quiet=True), Table(title=name, caption="x\x1b[2J")
    table.add_column("two\nlines", min_width=80)
    table.add_row("x\x1b[2J")
    screen.say(name)
    screen.show(table)
    with screen.watch(name) as watcher:
        watcher.line(name)
    assert capsys.readouterr().out.count(shown) == 3
    out = io.StringIO()
    with Bar(PlainConsole(file=out, width=140), name) as bar:
        assert bar.title == shown
        bar.line(name)
    assert shown in out.getvalue()


def test_letters_that_a_terminal_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    Screen(quiet=True).say("85.1 ± 4.6")
    out.flush()
    assert out.buffer.getvalue() == b"85.1 \\xb1 4.6\n"


@pytest.mark.parametrize("width", [*range(60, 130), 300])
def test_a_wide_table_loses_no_number(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    header = ["", *(f"shared, head {number}" for number in range(9))]
    lines = [[f"cell {row}", *(f"{row}{number}.5 ± 0.3 (5{number}.1)" for number in range(9))] for row in range(3)]
    screen = Screen(quiet=True)
    screen.console.width = width
    screen.show_wide(header, lines, "a title")
    shown = capsys.readouterr().out
    assert all(entry in shown for line in lines for entry in line[1:])
    assert shown.count("cell 2") == {60: 5, 80: 3, 300: 1}.get(width, shown.count("cell 2"))
    assert shown.count("a title") == 1


@pytest.mark.parametrize(("terminal", "kind"), [(False, Lines), (True, Bar)])
def test_a_run_from_python_is_shown_on_standard_error(
    terminal: bool, kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with progress_of("a run") as watcher:
        assert type(watcher) is kind


def test_a_script_whose_output_is_no_terminal_gets_plain_lines(
    tiny: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "step 20/20: private " in shown.err
    assert "\x1b" not in shown.err


def test_a_notebook_shows_a_bar_without_widgets(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = list[str]()

    class Display(types.ModuleType):
        def display(self, content: dict[str, str], *, raw: bool, display_id: bool = False) -> Self:
            shown.append(content["text/plain"])
            return self

        update = display

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython.display", Display("IPython.display"))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("manyheads.console.REFRESH_SECONDS", 0.0)
    train(tiny)
    assert capsys.readouterr().err == ""
    assert len(shown) > 20
    assert shown[-1].startswith("mhd")
    assert "100 %" in shown[-1]
    assert "cross_entropy" in shown[-1]
    assert "\x1b" not in "".join(shown)


def test_progress_can_be_switched_off(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[str]()

    def watched(title: str) -> contextlib.AbstractContextManager[SilentObserver]:
        shown.append(title)
        return contextlib.nullcontext(SilentObserver())

    monkeypatch.setattr("manyheads.api.progress_of", watched)
    train(tiny, progress=False)
    train(tiny, observer=SilentObserver())
    assert shown == []
    train(tiny)
    assert shown == ["mhd"]


def test_a_closed_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    screen = Screen(quiet=False)
    screen.say("nobody hears this")
    with progress_of("tiny") as watcher:
        watcher.line("nor this")
    assert not screen.decorated

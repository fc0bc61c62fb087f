"""The commands. A mistake ends in one line on standard error and exit status 2."""

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from manyheads.cli import MISTAKE, STOPPED
from manyheads.cli.data import pack_images, split
from manyheads.cli.paper import reproduce
from manyheads.cli.runs import compare, demo, evaluate_run, export, frontier, resume_run, run
from manyheads.errors import ManyheadsError, Stopped
from manyheads.imports import describe_error
from manyheads.memory import enough_memory
from manyheads.printable import abridged
from manyheads.version import __version__

NAME = "manyheads"
OF_PRINTING = (errno.ENOSPC, errno.EPIPE, errno.EIO)  # if no file is named: errors of files that are written name them
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "run": run,
    "resume": resume_run,
    "split": split,
    "pack": pack_images,
    "compare": compare,
    "evaluate": evaluate_run,
    "frontier": frontier,
    "reproduce": reproduce,
    "export": export,
}

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]  # click's, which newer versions of typer carry with them


class OneLineGroup(TyperGroup):
    """A group of commands that answers a mistake in arguments as any other: one line, with the help to look at."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        try:
            status = super().main(*args, **{**kwargs, "standalone_mode": False})
        except USAGE_ERROR as error:
            context, said = getattr(error, "ctx", None), " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
            command = context.command_path if context else NAME
            print(abridged(f"error: {said}; see {command} --help"), file=sys.stderr)
            sys.exit(MISTAKE)
        sys.exit(status or 0)


app = typer.Typer(
    name=NAME,
    cls=OneLineGroup,
    help="Many heads are better than one: clients with private data teach each other, without a server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def guarded(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that a mistake is one line, and an interruption says how to continue."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        try:
            with enough_memory():
                function(*args, **kwargs)
                sys.stdout.flush()
        except Stopped as stopped:
            print(f"\n{stopped}", file=sys.stderr)
            raise typer.Exit(STOPPED) from None
        except ManyheadsError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(MISTAKE) from None
        except OSError as error:
            place = error.filename or ("standard output" if error.errno in OF_PRINTING else name)
            print(abridged(f"error: {place}: {error.strerror or error}"), file=sys.stderr)
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt as left:
            print(f"\n{abridged(str(left) or 'stopped')}", file=sys.stderr)
            raise typer.Exit(STOPPED) from None
        except Exception:
            raise
        except BaseException as error:  # sys.exit in code that an experiment names would look like success
            print(abridged(f"error: {name}: ended by {describe_error(error)}"), file=sys.stderr)
            raise typer.Exit(MISTAKE) from None

    return command


def version(show: bool) -> None:
    if show:
        print(f"manyheads {__version__}", flush=True)
        raise typer.Exit()


@app.callback()
def common(
    show_version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True)] = False,
) -> None:
    pass


for _name, _function in COMMANDS.items():
    app.command(_name)(guarded(_name, _function))


def start() -> None:
    """Run the command that was given; if its output cannot be written, say so in one line."""
    try:
        app()
    except OSError as error:  # from --help and --version
        print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
        sys.exit(MISTAKE)
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # reported already; Python would try once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

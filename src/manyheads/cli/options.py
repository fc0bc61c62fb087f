"""The arguments and options that several commands share."""

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.config.toml import TOO_LARGE
from manyheads.engine import ENGINES
from manyheads.engine.options import EngineOptions
from manyheads.errors import ConfigurationError

ExperimentFile = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="An experiment file.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Override a value, such as training.steps=200."),
]
DeviceName = Annotated[str, typer.Option(help="cpu or cuda.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run, starting with the experiment's.")]
MAX_SEEDS = 1_000
Quiet = Annotated[bool, typer.Option("--quiet", help="Print plain lines instead of a progress bar.")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Import the code and fetch the data that this folder names, even if you did not make it here.",
    ),
]


def check_seeds(seeds: int | None, first: int = 0) -> None:
    """Refuse more seeds than anybody waits for, and seeds that are too large to be written down."""
    if seeds is not None and seeds > MAX_SEEDS:
        raise ConfigurationError(f"--seeds {seeds}: at most {MAX_SEEDS:,}")
    if seeds is not None and first + seeds > 2**63:
        raise ConfigurationError(f"--seeds {seeds}: with seed = {first}, the last one is {TOO_LARGE}; lower seed")


AS_STARTED = "as it was started"
# The fields of EngineOptions: type, help text, and the default as --help shows it.
ENGINE_OPTIONS: dict[str, tuple[Any, str, str | bool]] = {
    "engine": (str | None, f"How clients are trained: {', '.join(ENGINES)}.", "plain"),
    "device": (str | None, "cpu or cuda.", "cuda with --engine cuda, otherwise cpu"),
    "workers": (int | None, "Number of processes of --engine parallel.", "one per core"),
    "address": (str | None, "HOST:PORT of a cluster for --engine ray.", "RAY_ADDRESS, or this machine"),
    "gpus_per_client": (
        float | None,
        "GPUs per client for --engine ray --device cuda, such as 0.25.",
        "divided evenly",
    ),
    "precision": (str | None, "Precision of a GPU: bf16, tf32 or float32.", "bf16"),
    "profile": (bool, "Show where the time goes; write a torch trace of two steps.", False),
}


def engine_options(*names: str, **usual: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `options` of a command by an option for each field of EngineOptions, or for those named.

    `usual` holds the defaults that --help shows for this command.
    """
    chosen = names or tuple(ENGINE_OPTIONS)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            options = EngineOptions(**{name: given.pop(name) for name in chosen})
            function(**given, options=options)

        own, found = inspect.signature(function), list[inspect.Parameter]()
        for parameter in own.parameters.values():
            found += [_option(name, usual.get(name)) for name in chosen] if parameter.name == "options" else [parameter]
        command.__signature__ = own.replace(parameters=found)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
        return command

    return decorate


def _option(name: str, usual: str | None) -> inspect.Parameter:
    """Return a parameter as typer reads it from the signature of a command."""
    kind, text, default = ENGINE_OPTIONS[name]
    option = typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=usual or default)
    not_given = False if kind is bool else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=not_given, annotation=Annotated[kind, option]
    )


def folder_given(text: str | None, option: str = "--out") -> Path | None:
    """Return the folder that an option names. An empty name usually comes from a shell variable that is not set."""
    if text is not None and not text.strip():
        raise ConfigurationError(f"{option}: is empty; give a folder, or leave the option out")
    return None if text is None else Path(text)


def picture_given(text: str | None) -> Path | None:
    """Return the file that --plot names, or refuse one that cannot become a PNG picture."""
    if text is None:
        return None
    if Path(text).suffix.lower() != ".png":
        raise ConfigurationError(f"--plot {text}: pictures are PNG files; give a name such as picture.png")
    if Path(text).exists() and not Path(text).is_file():
        raise ConfigurationError(f"--plot {text}: exists and is not a file; give another name")
    return Path(text)


def client_given(text: str) -> int | str:
    """Return the number of a client, or its name."""
    return int(text) if re.fullmatch("-?[0-9]{1,9}", text) else text

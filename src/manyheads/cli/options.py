"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from manyheads.engine import ENGINES

ExperimentFile = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="An experiment file.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Replace a key, such as training.steps=200."),
]
EngineName = Annotated[str, typer.Option(help=f"Where clients train: {', '.join(ENGINES)}.")]
DeviceName = Annotated[str, typer.Option(help="cpu or cuda.")]
TrainingDevice = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda.", show_default="cuda with --engine cuda, otherwise cpu")
]
PrecisionName = Annotated[
    str | None, typer.Option("--precision", help="How a GPU computes: bf16, tf32 or float32.", show_default="bf16")
]
Profile = Annotated[bool, typer.Option("--profile", help="Show where the time goes; write a torch trace of two steps.")]
Workers = Annotated[
    int | None, typer.Option(help="Number of processes of --engine parallel.", show_default="one per core")
]
Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of a cluster for --engine ray.", show_default="RAY_ADDRESS, or this machine"),
]
GpusPerClient = Annotated[
    float | None,
    typer.Option(help="GPUs per client for --engine ray --device cuda, such as 0.25.", show_default="divided evenly"),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run, starting with the experiment's.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print plain lines instead of a progress bar.")]
TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="Import the code that this folder names, even if you did not make it here."),
]

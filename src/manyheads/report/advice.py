"""Advice where joining did not help: what to change first, and never what is set already."""

from dataclasses import dataclass
from pathlib import Path

from manyheads.runs.read import read_experiment, read_start

FEW_PASSES = 20.0  # over the public set: with fewer, a run is called short
PUBLIC_READERS = ("mhd", "fedmd")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run on which advice depends."""

    algorithm: str
    steps: int
    public_samples: int | None = None  # None: not known, or no algorithm reads them
    passes: float | None = None  # over the public set, by each client
    confidence: str | None = None  # None: the algorithm has none
    groups: bool = False
    average_every: int | None = None


def read_settings(folder: Path) -> RunSettings:
    """Read the settings of a run from its folder."""
    experiment, start = read_experiment(folder), read_start(folder)
    name, knobs, training = experiment.algorithm.name, experiment.algorithm.options(), experiment.training
    public = start.public_samples if start is not None and name in PUBLIC_READERS else None
    steps = float(training.steps)
    if name == "fedmd":  # the other steps read private batches
        digest, revisit = int(knobs.get("digest_steps", 1)), int(knobs.get("revisit_steps", 1))
        steps *= digest / (digest + revisit)
    return RunSettings(
        algorithm=name,
        steps=training.steps,
        public_samples=public,
        passes=steps * training.public_batch_size / public if public else None,
        confidence=knobs.get("confidence", "max_probability") if name == "mhd" else None,
        groups=bool(experiment.groups),
        average_every=knobs.get("average_every") if name == "averaging" else None,
    )


def advice_text(settings: RunSettings) -> str:
    """Say what to change first.

    >>> advice_text(RunSettings("mhd", steps=600, public_samples=431, passes=44.5, confidence="density"))
    'more public samples (now 431), or ones that look more like the private ones'
    """
    if settings.passes is not None and settings.passes < FEW_PASSES:
        return (
            f"more steps (training.steps = {settings.steps} is short: {settings.passes:.1f} passes over the "
            f"{settings.public_samples} public samples)"
        )
    if settings.confidence not in (None, "density") and not settings.groups:  # within groups there is no density
        return "algorithm.confidence=density, which believes those who were trained on such samples"
    if settings.public_samples is not None:
        return f"more public samples (now {settings.public_samples}), or ones that look more like the private ones"
    if settings.average_every is not None and settings.average_every > 1:
        return f"averaging more often (algorithm.average_every = {settings.average_every}), or more steps"
    return f"more steps (training.steps = {settings.steps})"

"""The same clients trained in several ways, side by side: is it worth joining?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.config.knobs import ALSO_KNOWN, KNOBS
from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError
from manyheads.runs.read import check_new_folder, check_no_run, read_experiment
from manyheads.studies.paper.keys import slug
from manyheads.studies.series import check_same_experiment

SUPERVISED = "supervised"  # one model with the private data of all
ALONE = ("separate", SUPERVISED)  # nobody learns from anybody
WAYS = (*KNOBS, SUPERVISED)
FEDMD_STEPS = 2  # a step of FedMD takes a private or a public batch, a step of MHD takes both


@dataclass(frozen=True)
class PlannedRun:
    """A run of one way with one seed, complete and checked."""

    way: str
    experiment: Experiment
    folder: Path


@dataclass(frozen=True)
class Plan:
    """The runs that belong together, those of the experiment's own algorithm first, and why other ways are missing."""

    runs: tuple[PlannedRun, ...]
    missing: dict[str, str]

    def titles(self, *, seeds: bool) -> list[str]:
        """Return a title for each run: `2/6 separate seed 1`."""
        number = len(self.runs)
        return [
            f"{at}/{number} {run.way}" + (f" seed {run.experiment.seed}" if seeds else "")
            for at, run in enumerate(self.runs, 1)
        ]


def ways_given(text: str, own: str) -> list[str]:
    """Return the ways that --beside names, beside the algorithm that the experiment has.

    >>> ways_given("separate, fedmd", own="mhd")
    ['separate', 'fedmd']
    """
    names = [name.strip() for name in text.split(",")]
    for number, name in enumerate(names):
        if not name:
            raise ConfigurationError(f"--beside: a name is empty; give one or several of {', '.join(WAYS)}")
        if name not in WAYS:
            hint = ALSO_KNOWN.get(name.lower()) or nearest(name, WAYS)
            raise ConfigurationError(f"--beside {name}: unknown; {hint}")
        if name == own:
            raise ConfigurationError(f"--beside {name}: is what the experiment itself trains; leave it out")
        if name in names[:number]:
            raise ConfigurationError(f"--beside {text}: names {name} twice")
    return names


def experiment_for(experiment: Experiment, way: str) -> Experiment:
    """Return the same clients trained in another way, with its own defaults.

    FedMD gets twice as many steps as the others. Groups are left out where nobody exchanges anything.

    >>> digits = Experiment(clients=8, data={"source": "digits"}, training={"steps": 100, "warmup_steps": 7})
    >>> fedmd = experiment_for(digits, "fedmd")
    >>> fedmd.training.steps, fedmd.training.warmup_steps, experiment_for(digits, "separate").training.steps
    (200, 14, 100)
    """
    name = "separate" if way == SUPERVISED else way
    made = experiment.with_values(algorithm={"name": name})
    own = experiment.algorithm.name
    if "fedmd" in (own, name):
        made = _with_steps(made, experiment, twice=name == "fedmd")
    if way == SUPERVISED or (way in ALONE and made.groups):
        made = made.with_values(groups=[], graph={"name": "complete"})
    return made.with_values(clients=1) if way == SUPERVISED else made


def _with_steps(made: Experiment, given: Experiment, *, twice: bool) -> Experiment:
    def changed(count: int, least: int) -> int:
        return FEDMD_STEPS * count if twice else max(least, count // FEDMD_STEPS)

    training = {"steps": changed(given.training.steps, 1)}
    if "warmup_steps" in given.training.model_fields_set:
        training["warmup_steps"] = changed(given.training.warmup_steps, 0)
    return made.with_values(training=training)


def plan_beside(experiment: Experiment, ways: Sequence[str], seeds: int, folder: Path) -> Plan:
    """Resolve and check every run before the first one is trained; a way that does not fit is missing, and says why."""
    from manyheads.setup.resolve import resolve

    first = resolve(experiment)
    numbers = range(experiment.seed, experiment.seed + seeds)
    own = experiment.algorithm.name
    complete, missing = {own: [resolve(experiment.with_values(seed=s), loaded=first).experiment for s in numbers]}, {}
    for way in ways:
        try:
            made = experiment_for(experiment, way)
            complete[way] = [resolve(made.with_values(seed=s), loaded=first).experiment for s in numbers]
        except ConfigurationError as error:
            missing[way] = str(error)
    runs = []
    for way, every in complete.items():
        place = folder / slug(way)
        if seeds > 1:
            check_no_run(place)
            check_same_experiment(every[0], place)
        for seeded in every:
            run = PlannedRun(way, seeded, place / f"seed-{seeded.seed}" if seeds > 1 else place)
            _check_free_or_same(run)
            runs.append(run)
    return Plan(tuple(runs), missing)


def _check_free_or_same(run: PlannedRun) -> None:
    """Refuse a folder that holds anything but this run."""
    if not (run.folder / "experiment.toml").exists():
        check_new_folder(run.folder)
    elif read_experiment(run.folder).fingerprint() != run.experiment.fingerprint():
        raise RunError(f"{run.folder}: holds a different experiment; give another folder with --out")

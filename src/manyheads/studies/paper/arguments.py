"""What was asked for on the command line: which tables, of what data, how; and whether that can be done."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.config.messages import nearest
from manyheads.engine.options import EngineOptions, ResolvedOptions
from manyheads.errors import ConfigurationError, DataError
from manyheads.studies.paper.jobs import Job, JobList, plan
from manyheads.studies.paper.names import NAMES
from manyheads.studies.paper.places import called
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import Stored
from manyheads.studies.paper.scales import SCALES, Scale

IN_THE_REPOSITORY = Path("experiments/mhd/results")
RUNS = Path("runs/reproduce")
ELSEWHERE = RUNS / "results"


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    names: Sequence[str]
    scale: Scale
    results: Path
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Path | None = None
    said: EngineOptions = field(default_factory=EngineOptions)  # of engines; what is left open depends on the scale
    at_once: int | None = None
    out: Path = RUNS
    again: bool = False
    keep: bool = False
    steps: int | None = None  # only a few, to see whether it starts

    @property
    def options(self) -> ResolvedOptions:
        """The GPU where there is one and it is worth it."""
        import torch  # late: a mistake in a name is told without it

        from manyheads.engine.resolve import resolve_options

        usual = "cuda" if self.scale.for_gpu and self.said.device != "cpu" and torch.cuda.is_available() else "plain"
        return resolve_options(replace(self.said, engine=self.said.engine or usual))

    def plan(self, names: Sequence[Reproduction], stored: Stored) -> JobList:
        """What has to be run of these names, beside what is stored."""
        return plan(
            names,
            self.scale,
            seeds=self.seeds,
            only=self.only,
            data=self.data,
            stored=stored,
            out=self.out,
            options=self.options,
            again=self.again or self.steps is not None,
            keep=self.keep,
        )


def results_folder(given: Path | None) -> Path:
    """Where results are stored: those of the repository where one stands in it."""
    if given is not None and (given / "experiment.toml").exists():
        raise ConfigurationError(f"--results {given}: is a run; give another folder")
    return given or (IN_THE_REPOSITORY if IN_THE_REPOSITORY.is_dir() else ELSEWHERE)


def elsewhere(results: Path) -> str:
    """Where else to look, where there is nothing."""
    return "" if results.is_dir() else f"; those of the repository: --results REPOSITORY/{IN_THE_REPOSITORY}"


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise ConfigurationError(f"--scale {name}: unknown scale; {nearest(name, SCALES)}")
    return SCALES[name]


def chosen(request: Request) -> list[Reproduction]:
    """Those that were asked for, at a scale where they make sense; "all" are all of these."""
    scale = request.scale
    if not request.names or not all(map(str.strip, request.names)):
        raise ConfigurationError("NAME: missing; manyheads reproduce --list shows what there is")
    names = called(request.names)
    if "all" in names:
        names = [name for name, one in NAMES.items() if scale.name in one.scales]
    for name in names:
        if name not in NAMES:
            raise ConfigurationError(f"{name}: unknown name; {nearest(name, [*NAMES, 'all'])}")
        if scale.name not in NAMES[name].scales:
            known = " or ".join(NAMES[name].scales)
            raise ConfigurationError(f"{name}: there is no such table at scale {scale.name}; take --scale {known}")
    found = [NAMES[name] for name in names]
    cells = list(dict.fromkeys(cell for one in found for cell in one.cells(scale)))
    for cell in request.only:
        if cell not in cells:
            near = [name for name in cells if cell in name][:1] or difflib.get_close_matches(cell, cells, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"manyheads reproduce {names[0]} --list shows its cells"
            raise ConfigurationError(f'--only "{cell}": there is no such cell; {hint}')
    return found


def only_cell(request: Request) -> Experiment:
    """Return the one cell that was asked for."""
    found = {name: cell for one in chosen(request) for name, cell in one.cells(request.scale).items()}
    if len(request.only) != 1:
        raise ConfigurationError(f'--toml: say which cell with --only, such as "{next(iter(found))}"')
    return found[request.only[0]]


def check_data(jobs: Sequence[Job], request: Request) -> None:
    """Refuse before anything is started what cannot be read."""
    if jobs and request.scale.mhd.data.source == "packed":
        if request.data is None:
            raise ConfigurationError("--data: missing; give the folder that `manyheads pack` made of ImageNet")
        from manyheads.data.sources.packs import read_card

        try:
            read_card(request.data)
        except (ConfigurationError, DataError):
            raise DataError(
                f"--data {request.data}: not packed; first: manyheads pack IMAGENET FOLDER --size 224"
            ) from None
    if request.scale.in_folder:
        for path in sorted({path for job in jobs for path in _files(job)}):
            if not Path(path).is_file():
                raise DataError(f"{path}: not there; give its folder with --data (docs/data.md says how to make it)")


def _files(job: Job) -> list[str]:
    data = job.experiment.data
    public = [] if isinstance(data.public, str | None) else [str(data.public.path)]
    return [str(data.path), *public]

"""The arguments of `manyheads reproduce`: which tables, from which data, run how; mistakes in them are refused."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.config.messages import nearest
from manyheads.engine.options import EngineOptions, ResolvedOptions
from manyheads.errors import ConfigurationError, DataError
from manyheads.studies.paper.jobs import JobList, plan_jobs
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.names import REPRODUCTIONS
from manyheads.studies.paper.places import resolve_names
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import Stored, read_results
from manyheads.studies.paper.scales import SCALES, Scale

REPOSITORY_RESULTS = Path("experiments/mhd/results")
RUNS = Path("runs/reproduce")
OWN_RESULTS = RUNS / "results"
MOST_AT_ONCE = 1_024


@dataclass(frozen=True)
class ReproduceRequest:
    """The arguments of `manyheads reproduce`."""

    names: Sequence[str]
    scale: Scale
    results: Path
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Path | None = None
    given: EngineOptions = field(default_factory=EngineOptions)  # what is left open depends on the scale
    at_once: int | None = None
    out: Path = RUNS
    again: bool = False
    keep: bool = False
    steps: int | None = None  # take only so many, to see whether it starts

    @property
    def options(self) -> ResolvedOptions:
        """Return the options of the engine: a GPU, if there is one and it is worth it."""
        import torch  # late: a mistake in a name is reported without it

        from manyheads.engine.defaults import resolve_options

        usual = "cuda" if self.scale.for_gpu and self.given.device != "cpu" and torch.cuda.is_available() else "plain"
        return resolve_options(replace(self.given, engine=self.given.engine or usual))

    def plan_jobs(self, names: Sequence[Reproduction], stored: Stored) -> JobList:
        """Return the jobs for everything in these reproductions that is not stored."""
        return plan_jobs(
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
    """Return the folder of stored results: by default that of the repository, if the command is run there."""
    if given is not None and (given / "experiment.toml").exists():
        raise ConfigurationError(f"--results {given}: is a run; give another folder")
    return given or (REPOSITORY_RESULTS if REPOSITORY_RESULTS.is_dir() else OWN_RESULTS)


def hint_elsewhere(results: Path) -> str:
    """Say where else to look if the folder of results does not exist."""
    return "" if results.is_dir() else f"; those of the repository: --results REPOSITORY/{REPOSITORY_RESULTS}"


def check_page(page: Path) -> None:
    """Refuse a page that is no Markdown file: also before anything is run."""
    if page.suffix.lower() != ".md" or (page.exists() and not page.is_file()):
        raise ConfigurationError(f"--page {page}: give a Markdown file, such as {page / 'results.md'}")


def check_at_once(at_once: int | None) -> None:
    """Refuse more cells at a time than any machine has cores for."""
    if at_once is not None and at_once > MOST_AT_ONCE:
        raise ConfigurationError(f"--at-once {at_once}: at most {MOST_AT_ONCE:,}")


def scale_named(name: str) -> Scale:
    """Return the scale of this name."""
    if name not in SCALES:
        raise ConfigurationError(f"--scale {name}: unknown scale; {nearest(name, SCALES)}")
    return SCALES[name]


def chosen_reproductions(request: ReproduceRequest) -> list[Reproduction]:
    """Return the reproductions that were asked for; "all" are those that make sense at the scale."""
    scale = request.scale
    if not request.names or not all(map(str.strip, request.names)):
        raise ConfigurationError("NAME: missing; manyheads reproduce --list shows what there is")
    names = resolve_names(request.names)
    if "all" in names:
        names = [name for name, one in REPRODUCTIONS.items() if scale.name in one.scales]
    for name in names:
        if name not in REPRODUCTIONS:
            raise ConfigurationError(f"{name}: unknown name; {nearest(name, [*REPRODUCTIONS, 'all'])}")
        if scale.name not in REPRODUCTIONS[name].scales:
            known = " or ".join(REPRODUCTIONS[name].scales)
            raise ConfigurationError(f"{name}: there is no such table at scale {scale.name}; use --scale {known}")
    found = [REPRODUCTIONS[name] for name in names]
    cells = list(dict.fromkeys(cell for one in found for cell in one.cells(scale)))
    for cell in request.only:
        if cell not in cells:
            near = [name for name in cells if cell in name][:1] or difflib.get_close_matches(cell, cells, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"manyheads reproduce {names[0]} --list shows its cells"
            raise ConfigurationError(f'--only "{cell}": there is no such cell; {hint}')
    return found


def only_cell(request: ReproduceRequest) -> Experiment:
    """Return the one cell that was asked for."""
    found = {name: cell for one in chosen_reproductions(request) for name, cell in one.cells(request.scale).items()}
    if len(request.only) != 1:
        raise ConfigurationError(f'--toml: say which cell with --only, such as "{next(iter(found))}"')
    return found[request.only[0]]


def check_early(request: ReproduceRequest) -> None:
    """Raise where cells of which nothing is stored need a GPU or data that are not there: without PyTorch."""
    request.given.check_gpu()
    stored = {key for key, _ in read_results(request.results, request.scale.name)}
    cells = {name: cell for one in chosen_reproductions(request) for name, cell in one.cells(request.scale).items()}
    asked = [cell for name, cell in cells.items() if name in request.only or not request.only]
    due = [cell for cell in asked if request.again or cell_key(cell) not in stored]
    check_data([request.scale.with_data(cell, request.data) for cell in due], request)


def check_data(cells: Sequence[Experiment], request: ReproduceRequest) -> None:
    """Refuse data that cannot be read, before any of these cells is started."""
    if cells and request.scale.mhd.data.source == "packed":
        if request.data is None:
            raise ConfigurationError("--data: missing; give the folder that `manyheads pack` made of ImageNet")
        from manyheads.data.sources.packed_folder import read_card

        try:
            read_card(request.data)
        except (ConfigurationError, DataError):
            raise DataError(
                f"--data {request.data}: not packed; first: manyheads pack IMAGENET FOLDER --size 224"
            ) from None
    if request.scale.in_folder:
        for path in sorted({path for cell in cells for path in _files(cell)}):
            if not Path(path).is_file():
                raise DataError(f"{path}: not there; give its folder with --data (docs/data.md says how to make it)")


def _files(cell: Experiment) -> list[str]:
    data = cell.data
    public = [] if isinstance(data.public, str | None) else [str(data.public.path)]
    return [str(data.path), *public]

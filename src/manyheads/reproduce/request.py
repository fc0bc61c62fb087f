"""What was asked for on the command line: which tables, of what data, how; and whether that can be done."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from manyheads.data.sources.packs import read_card
from manyheads.engine import options_for
from manyheads.errors import ConfigurationError, DataError
from manyheads.experiment import nearest
from manyheads.reproduce import NAMES
from manyheads.reproduce.base import Reproduction
from manyheads.reproduce.results import Stored
from manyheads.reproduce.runner import How, Job, Plan, plan
from manyheads.reproduce.scales import SCALES, Scale

IN_THE_REPOSITORY = Path("experiments/mhd/results")
ELSEWHERE = Path("runs/reproduce/results")


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    names: Sequence[str]
    scale: Scale
    results: Path
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Path | None = None
    engine: str | None = None
    device: str | None = None
    precision: str | None = None
    at_once: int | None = None
    out: Path = Path("runs/reproduce")
    again: bool = False
    keep: bool = False
    steps: int | None = None  # only a few, to see whether it starts

    @property
    def how(self) -> How:
        """The GPU where there is one and it is worth it."""
        usual = "cuda" if self.scale.for_gpu and self.device != "cpu" and torch.cuda.is_available() else "plain"
        how: How = {"engine": self.engine or usual, "device": self.device, "precision": self.precision}
        options_for(**how)  # a mistake in it is said once, before anything starts
        return how

    def plan(self, names: Sequence[Reproduction], seeds: int | None, stored: Stored, out: Path, again: bool) -> Plan:
        """What has to be run of these names, beside what is stored."""
        return plan(
            names,
            self.scale,
            seeds=seeds,
            only=self.only,
            data=self.data,
            stored=stored,
            out=out,
            how=self.how,
            again=again,
            keep=self.keep,
        )


def results_folder(given: Path | None) -> Path:
    """Where results are stored: those of the repository where one stands in it."""
    return given or (IN_THE_REPOSITORY if IN_THE_REPOSITORY.is_dir() else ELSEWHERE)


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise ConfigurationError(f"--scale {name}: unknown scale; {nearest(name, SCALES)}")
    return SCALES[name]


def chosen(request: Request) -> list[Reproduction]:
    """Those that were asked for, at a scale where they make sense; "all" are all of these."""
    names, scale = request.names, request.scale
    if not names:
        raise ConfigurationError("NAME: missing; manyheads reproduce --list shows what there is")
    if "all" in names:
        names = [name for name, one in NAMES.items() if scale.name in one.scales]
    names = list(dict.fromkeys(here for name in names for here in _called(name)))
    for name in names:
        if name not in NAMES:
            raise ConfigurationError(f"{name}: unknown name; {nearest(name, [*NAMES, 'all'])}")
        if scale.name not in NAMES[name].scales:
            known = " or ".join(NAMES[name].scales)
            raise ConfigurationError(
                f"{name}: the paper has it at another scale than {scale.name}; take --scale {known}"
            )
    found = [NAMES[name] for name in names]
    cells = {cell for one in found for cell in one.cells(scale)}
    for cell in request.only:
        if cell not in cells:
            near = difflib.get_close_matches(cell, cells, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"manyheads reproduce {names[0]} --list shows its cells"
            raise ConfigurationError(f'--only "{cell}": there is no such cell; {hint}')
    return found


def _called(name: str) -> list[str]:
    """What the paper calls "Table 5" or "Section 4.2.2", by the names that it has here; any other name as it is."""
    sought = _places(name)

    def in_it(place: str) -> bool:  # Section 4.2.2 is in Section 4.2
        return any(place == each or place.startswith(f"{each}.") for each in sought)

    return [one.name for one in NAMES.values() if any(map(in_it, _places(one.where)))] or [name]


def _places(text: str) -> set[str]:
    """Where something is in the paper: "Figure 4, Tables 7 and 8" are three places, "Figs. 3-5" too, "4.2.2" is one."""
    sought = f"section {text}" if re.fullmatch(r"\d+(\.\d+)+", text) else text.lower().replace("\N{EN DASH}", "-")
    listed = re.findall(r"(fig|tab|sec)[a-z.]*\s*(\d[\d.]*(?:\s*(?:,|and|-)\s*\d[\d.]*)*)", sought)
    return {f"{kind} {number}" for kind, numbers in listed for number in _numbers(numbers)}


def _numbers(text: str) -> Iterator[str]:
    """Of "1, 3-5" four."""
    for first, last in re.findall(r"(\d[\d.]*)(?:\s*-\s*(\d+))?", text):
        yield first.rstrip(".")
        if last and first.isdigit():
            yield from map(str, range(int(first) + 1, int(last) + 1))


def check_data(jobs: Sequence[Job], request: Request) -> None:
    """Refuse before anything is started what cannot be read."""
    if jobs and request.scale.mhd.data.source == "packed":
        if request.data is None:
            raise ConfigurationError("--data: missing; give the folder that `manyheads pack` made of ImageNet")
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

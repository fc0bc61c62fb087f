"""Cells that are to be run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.engine.cores import usable_cores
from manyheads.engine.options import ResolvedOptions
from manyheads.errors import TrainingError
from manyheads.studies.paper.code_of_numbers import code_of_numbers, first_like, same_numbers
from manyheads.studies.paper.keys import key_of, slug
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import Stored
from manyheads.studies.paper.scales import Scale

FULL_GPU = 4  # clients whose steps fill a GPU: more at a time would only wait for each other


@dataclass(frozen=True)
class Job:
    """A cell for one seed that is to be run."""

    cell: str  # with the name of its reproduction
    scale: str
    experiment: Experiment
    folder: Path
    options: ResolvedOptions
    again: bool = False  # also where its run has ended already

    @property
    def work(self) -> float:
        """About how long it takes, in units that compare jobs with equal models: samples that pass through a model."""
        from manyheads.algorithms import make_algorithm  # algorithms import PyTorch, and most requests need none

        training = self.experiment.training
        samples = make_algorithm(self.experiment.algorithm).samples_per_step(training)
        return self.experiment.clients * training.steps * samples

    @property
    def share(self) -> float:
        """How much of the machine it keeps busy: a core, or the part of a GPU that its clients fill."""
        if self.options.engine == "cuda":
            return min(1.0, self.experiment.clients / FULL_GPU)
        on_a_core = self.options.engine == "plain" and self.options.device == "cpu"
        return 1.0 / usable_cores() if on_a_core else 1.0


@dataclass(frozen=True)
class JobList:
    """What a reproduction needs, and what of it is stored already."""

    jobs: list[Job]
    stored: int
    stale: int  # stored, but made by other code


def plan(
    reproductions: Sequence[Reproduction],
    scale: Scale,
    *,
    seeds: int | None,
    only: Sequence[str],
    data: Path | None,
    stored: Stored,
    out: Path,
    options: ResolvedOptions,
    again: bool = False,
    keep: bool = False,
) -> JobList:
    """The jobs for what is missing, one table after the other, in each the longest first.

    A cell that several tables have is run once.
    """
    jobs: list[Job] = []
    due, done, stale = set[tuple[str, int]](), set[tuple[str, int]](), 0
    for reproduction in reproductions:
        own = []
        for name, cell in reproduction.cells(scale).items():
            if only and name not in only:
                continue
            for seed in range(reproduction.seeds_asked(scale) if seeds is None else seeds):
                at = key_of(cell), seed
                have = stored.get(at)
                if at in due:
                    continue
                if have is not None and not again:
                    if keep or same_numbers(have.code):
                        done.add(at)
                        continue
                    stale += 1
                label = f"{reproduction.name} {name}"
                made_by = f"{first_like(code_of_numbers())[:6]}{_device(options)}"
                folder = out / scale.name / f"{slug(label)}-seed-{seed}-{at[0][:6]}-{made_by}"
                own.append(Job(label, scale.name, scale.at(cell.with_values(seed=seed), data), folder, options, again))
                due.add(at)
        jobs += sorted(own, key=lambda job: -job.work)
    return JobList(jobs, len(done), stale)


def _device(options: ResolvedOptions) -> str:
    """What a run may not change on its way: of a CPU all engines give the same bits."""
    return "" if options.device == "cpu" else f"-{options.device.partition(':')[0]}-{options.precision}"


class CellFailed(TrainingError):
    """A cell could not be run; the others were."""


class CellWorkerLost(CellFailed):
    """A worker process is gone, and with it all that was still to do."""

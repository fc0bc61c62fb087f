"""Jobs: cells that are to be run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.engine.cores import usable_cores
from manyheads.engine.options import ResolvedOptions
from manyheads.errors import TrainingError
from manyheads.studies.paper.code_of_numbers import code_of_numbers, oldest_equivalent, same_numbers
from manyheads.studies.paper.keys import cell_key, slug
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import Stored
from manyheads.studies.paper.scales import Scale

FULL_GPU = 4  # clients whose steps fill a GPU: more at a time would only wait for each other


@dataclass(frozen=True)
class Job:
    """A cell that is to be run for one seed."""

    cell: str  # with the name of its reproduction
    scale: str
    experiment: Experiment
    folder: Path
    options: ResolvedOptions
    again: bool = False  # also where its run has ended already

    @property
    def work(self) -> float:
        """Estimate how long it takes, in samples that pass through a model: comparable for equal models."""
        from manyheads.algorithms import make_algorithm  # algorithms import PyTorch, and most requests need none

        training = self.experiment.training
        samples = make_algorithm(self.experiment.algorithm).samples_per_step(training)
        return self.experiment.clients * training.steps * samples

    @property
    def share(self) -> float:
        """Return how much of the machine it keeps busy: a core, or the part of a GPU that its clients fill."""
        if self.options.engine == "cuda":
            return min(1.0, self.experiment.clients / FULL_GPU)
        on_a_core = self.options.engine == "plain" and self.options.device == "cpu"
        return 1.0 / usable_cores() if on_a_core else 1.0


@dataclass(frozen=True)
class JobList:
    """The jobs that a reproduction needs, and how much of it is stored already."""

    jobs: list[Job]
    stored: int
    stale: int  # stored, but made by other code


def plan_jobs(
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
    """Return the jobs for missing cells, table after table, the longest of each table first.

    A cell that several tables share is run once.
    """
    jobs: list[Job] = []
    due, done, stale = set[tuple[str, int]](), set[tuple[str, int]](), 0
    for reproduction in reproductions:
        own = []
        for name, cell in reproduction.cells(scale).items():
            if only and name not in only:
                continue
            for seed in range(reproduction.seeds_asked(scale) if seeds is None else seeds):
                at = cell_key(cell), seed
                have = stored.get(at)
                if at in due:
                    continue
                if have is not None and not again:
                    if keep or same_numbers(have.code):
                        done.add(at)
                        continue
                    stale += 1
                label = f"{reproduction.name} {name}"
                made_by = f"{oldest_equivalent(code_of_numbers())[:6]}{_device(options)}"
                folder = out / scale.name / f"{slug(label)}-seed-{seed}-{at[0][:6]}-{made_by}"
                own.append(
                    Job(label, scale.name, scale.with_data(cell.with_values(seed=seed), data), folder, options, again)
                )
                due.add(at)
        jobs += sorted(own, key=lambda job: -job.work)
    return JobList(jobs, len(done), stale)


def _device(options: ResolvedOptions) -> str:
    """Name what must not change during a run: all engines give the same bits on a CPU, but not on a GPU."""
    return "" if options.device == "cpu" else f"-{options.device.partition(':')[0]}-{options.precision}"


class CellFailed(TrainingError):
    """A cell could not be run; the others were."""


class CellWorkerLost(CellFailed):
    """A worker process is gone, and nothing more can be run."""

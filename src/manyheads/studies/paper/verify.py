"""Verification: run stored cells again and compare every number."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from manyheads.console import Screen
from manyheads.errors import ConfigurationError, RunError
from manyheads.files import write_whole
from manyheads.runs.remove import remove_run
from manyheads.studies.paper.arguments import ReproduceRequest, check_data, chosen_reproductions
from manyheads.studies.paper.code_of_numbers import same_numbers
from manyheads.studies.paper.command import RunnerOnScreen
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.results import MEASURED, CellResult, Stored, read_results, remove_results
from manyheads.studies.paper.runner import run_all

OTHER_MACHINE = (
    "A processor that rounds differently, another GPU, another precision or another PyTorch change the last bits, and "
    "means over clients by about as much as another seed; if they differ by much more, something is wrong"
)


def verify(screen: Screen, request: ReproduceRequest) -> None:
    """Run stored cells again, in another folder, and compare; if it is stopped, the same command continues."""
    scale, names = request.scale, chosen_reproductions(request)
    place = request.out / "verified" / scale.name / "-".join(one.name for one in names)
    stored = read_results(request.results, scale.name)
    parts = [one.results(scale, stored).select(request.only, request.seeds) for one in names]
    asked = {(r.key, r.seed) for part in parts for by_seed in part.cells.values() for r in by_seed.values()}
    if not asked:
        raise ConfigurationError(f"--verify: none of it is stored in {request.results / scale.name}")
    stored_seeds = [len(by_seed) for part in parts for by_seed in part.cells.values()]
    missing = sum(request.seeds - have for have in stored_seeds) if request.seeds else 0
    anew = replace(request, out=place / "runs", seeds=max(seed for _, seed in asked) + 1)
    planned = anew.plan_jobs(names, read_results(place, scale.name))
    jobs = [job for job in planned.jobs if (cell_key(job.experiment), job.experiment.seed) in asked]
    check_data([job.experiment for job in jobs], request)
    with screen.work(scale.name, sum(job.work for job in jobs)) as move:
        results = run_all(jobs, place, at_once=request.at_once, observer=RunnerOnScreen(screen, move))
        with contextlib.closing(results):
            for result in results:
                screen.say(f"{result.cell}, seed {result.seed}: {_comparison_text(result, stored)}")
    made = [result for at, result in read_results(place, scale.name).items() if at in asked]
    kept = request.out / "other-numbers" / place.relative_to(request.out / "verified")
    remove_results(kept)
    pairs = [(stored[result.key, result.seed], result) for result in made]
    if different := [(before, now) for before, now in pairs if now.differing_measures(before)]:
        kept.mkdir(parents=True, exist_ok=True)
        for path in (place / scale.name).glob("*.json"):
            write_whole(kept / path.name, path.read_bytes())
    _clear(place, scale.name)
    if different:
        raise RunError(
            f"{len(different)} of {len(made)} gave numbers other than the stored ones{_distance_text(different)} "
            f"({kept} has them)"
        )
    left = f"; another {missing} are not stored" if missing else ""
    screen.say(f"{len(made)} of {len(made)} gave exactly the stored numbers{left}")


def _clear(place: Path, scale: str) -> None:
    """Remove what was run and stored only to be compared."""
    for folder in (place / "runs" / scale).glob("*/"):
        if (folder / "experiment.toml").is_file():
            remove_run(folder)
            folder.with_name(f"{folder.name}.error.txt").unlink(missing_ok=True)
    remove_results(place / scale)
    for empty in (place / "runs" / scale, place / "runs", place / scale, place, place.parent, place.parent.parent):
        with contextlib.suppress(
            OSError
        ):  # something else is still there, perhaps from another command that was stopped
            empty.rmdir()


def _comparison_text(result: CellResult, stored: Stored) -> str:
    """Say whether a result has the stored numbers and, if not, what may be the reason."""
    before = stored[result.key, result.seed]
    if not (apart := result.differing_measures(before)):
        return "exactly the stored numbers"
    why = ["stored from other data"] if before.data not in (None, result.data) else []
    why += [] if same_numbers(before.code) else [f"stored by other code, {before.code[:8]}"]
    why += [elsewhere] if (elsewhere := why_elsewhere(before, result)) else []
    return f"numbers other than the stored ones ({'; '.join([*why, 'different: ' + ', '.join(apart)])})"


def why_elsewhere(before: CellResult, now: CellResult) -> str:
    """Say why last bits may differ, as far as results show; nothing if both machines were asked and round alike."""
    if not before.rounds_like(now):
        return f"stored by {before.made_by}, now by {now.made_by}"
    unasked = before.rounding is None and now.rounding is not None
    return "the stored ones do not say how their processor rounds" if unasked else ""


def _distance_text(different: Sequence[tuple[CellResult, CellResult]]) -> str:
    """Say how far apart accuracies are, in points, and what that means if machines differ."""
    means, every = (
        100.0 * max(before.largest_difference(now, names) for before, now in different)
        for names in (("private_accuracy", "shared_accuracy"), MEASURED)
    )
    far = (
        f"; means over clients differ by at most {means:.2g} points, single accuracies by {every:.2g}" if every else ""
    )
    return far + (f". {OTHER_MACHINE}" if any(why_elsewhere(before, now) for before, now in different) else "")

"""A log of what --again has run, so that the command continues after a stop."""

import json
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from manyheads.errors import RunError
from manyheads.files import read_file, write_whole
from manyheads.studies.paper.arguments import ReproduceRequest
from manyheads.studies.paper.jobs import Job
from manyheads.studies.paper.keys import cell_key
from manyheads.studies.paper.results import CellResult


class RerunLog:
    """A log of what --again has run so far, kept in a file until all of it is done."""

    def __init__(self, request: ReproduceRequest) -> None:
        self._place = request.out / request.scale.name / "again.json"
        self._into = str(request.results.resolve())
        self._done = self._read()  # by the folder of results

    def _read(self) -> dict[str, list[str]]:
        if not self._place.exists():
            return {}
        try:
            return TypeAdapter(dict[str, list[str]]).validate_json(read_file(self._place, follow=True))
        except ValidationError:
            raise RunError(f"{self._place}: does not say what was run again; remove it to begin --again anew") from None

    def remaining(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that have not been run yet."""
        return [job for job in jobs if self._name(job) not in self._done.get(self._into, [])]

    def record(self, result: CellResult) -> None:
        """Record that a result is stored."""
        self._done.setdefault(self._into, []).append(f"{result.key} {result.seed}")
        self._write()

    def forget(self, jobs: Sequence[Job]) -> None:
        """Forget these jobs, which are all done; jobs of other commands that were stopped are kept."""
        names = set(map(self._name, jobs))
        self._done[self._into] = [name for name in self._done.get(self._into, []) if name not in names]
        self._write()

    def _write(self) -> None:
        if any(self._done.values()):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._place, json.dumps(self._done).encode())
        else:
            self._place.unlink(missing_ok=True)

    @staticmethod
    def _name(job: Job) -> str:
        return f"{cell_key(job.experiment)} {job.experiment.seed}"

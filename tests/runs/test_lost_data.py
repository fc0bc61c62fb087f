"""No file of the user's own is removed, emptied or overwritten, whatever lies in or beside a run folder."""

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from manyheads import Experiment, RunError, TrainingError, resume, train
from manyheads.client.state import ClientState
from manyheads.files import write_whole
from manyheads.report.plots import plot_run
from manyheads.runs.checkpoints import Checkpoints
from manyheads.runs.folder import RunFolder
from manyheads.runs.manifest import read_manifest, state_name
from manyheads.runs.read import check_new_folder
from manyheads.runs.remove import check_removable, remove_run
from manyheads.runs.saved_files import remove_checkpoints
from manyheads.training.observer import SilentObserver
from tests.conftest import DIVERGES
from tests.test_files import at_once

OWN = (  # what somebody may keep among the checkpoints
    "notes.txt",
    "state-best.safetensors",
    "state-00000004-client-0000.safetensors",  # of an earlier save, put back
    ".hidden.partial",
    ".state-00000010-client-0000.safetensors.1234.partial",
)


def one_line(error: pytest.ExceptionInfo[RunError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_linked_checkpoints_are_refused_and_what_they_point_at_stays(stopped: Path, tmp_path: Path) -> None:
    theirs = Path(shutil.move(stopped / "checkpoints", tmp_path / "theirs"))
    (theirs / "thesis.txt").write_text("precious")
    before = {path.name for path in theirs.iterdir()}
    (stopped / "checkpoints").symlink_to(theirs)
    for use in (resume, remove_run, remove_checkpoints):
        with pytest.raises(RunError, match="checkpoints: is a link") as error:
            use(stopped)
        one_line(error)
    assert {path.name for path in theirs.iterdir()} == before


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "never saved"])
def test_linked_metrics_are_not_cut(stopped: Path, tmp_path: Path, saved: bool, link: object) -> None:
    theirs = Path(shutil.move(stopped / "metrics.jsonl", tmp_path / "theirs"))
    with theirs.open("a") as file:
        file.write('{"event": "what came later"}\n')
    before = theirs.read_bytes()
    if not saved:
        remove_checkpoints(stopped)
    link(stopped / "metrics.jsonl", theirs)  # type: ignore[operator]
    with pytest.raises(RunError, match=r"metrics.jsonl: (is a link|has another name)"):
        resume(stopped)
    assert theirs.read_bytes() == before


@pytest.mark.parametrize("saved", [True, False])
def test_own_files_in_the_place_of_a_later_save_are_not_replaced(stopped: Path, saved: bool) -> None:
    own = stopped / "checkpoints" / state_name(20, 1)
    if not saved:
        for path in (stopped / "checkpoints").iterdir():
            path.unlink()
    own.write_text("mine")
    with pytest.raises(RunError, match=f"{own.name}: is named like a file of a save that .*; move it away$"):
        resume(stopped)
    assert own.read_text() == "mine"
    if saved:
        own.rename(stopped / "mine")
        assert resume(stopped).summary.steps == 20


def test_what_comes_while_a_run_goes_on_is_not_replaced(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    own = tmp_path / "checkpoints" / state_name(20, 0)
    own.symlink_to("nowhere")
    with pytest.raises(RunError, match="move it away"):
        checkpoints.write(20, [ClientState({}, "", [], 0)], {})
    assert own.is_symlink()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [own.name]


def test_own_files_among_the_checkpoints_stay(stopped: Path) -> None:
    for name in OWN:
        (stopped / "checkpoints" / name).write_text("mine")
    resume(stopped)
    assert all((stopped / "checkpoints" / name).read_text() == "mine" for name in OWN)
    ours = {path.name for path in (stopped / "checkpoints").iterdir()} - set(OWN)
    assert ours == {*read_manifest(stopped).files, "manifest.json"}


def test_a_list_of_names_removes_only_what_a_save_could_have_made(stopped: Path, tmp_path: Path) -> None:
    checkpoints, outside = stopped / "checkpoints", tmp_path / "thesis.txt"
    for path in (outside, checkpoints / "notes.txt"):
        path.write_text("precious")
    folder, link = (f"state-{step:08d}-client-0000.safetensors" for step in (7, 8))
    (checkpoints / folder).mkdir()
    (checkpoints / link).symlink_to(outside)
    names = ["notes.txt", str(outside), "../../thesis.txt", "../metrics.jsonl", folder, link, 5, None]
    (checkpoints / "saving.json").write_text(json.dumps(names))
    resume(stopped)
    assert outside.exists()
    assert {"notes.txt", folder, link} <= {path.name for path in checkpoints.iterdir()}


def test_a_manifest_that_points_nowhere_does_not_begin_the_run_again(stopped: Path) -> None:
    before = (stopped / "metrics.jsonl").read_bytes()
    (stopped / "checkpoints" / "manifest.json").unlink()
    (stopped / "checkpoints" / "manifest.json").symlink_to("nowhere")
    with pytest.raises(RunError, match="is a link"):
        resume(stopped)
    assert (stopped / "metrics.jsonl").read_bytes() == before


def test_what_is_half_written_is_removed(stopped: Path) -> None:
    half = [f".{name}.0123456789abcdef.partial" for name in (*read_manifest(stopped).files, "manifest.json")]
    for name in half:
        (stopped / "checkpoints" / name).write_text("half")
    resume(stopped)
    assert not list(stopped.rglob("*.partial"))


def test_a_new_run_leaves_folders_beside_it_alone(tiny: Experiment, tmp_path: Path) -> None:
    (tmp_path / ".o.partial").mkdir()
    (tmp_path / ".o.partial" / "thesis.txt").write_text("precious")
    RunFolder.create(tmp_path / "o", tiny, "data").close()
    assert (tmp_path / ".o.partial" / "thesis.txt").read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {".o.partial", "o"}


def test_who_comes_second_is_refused_and_the_first_run_is_whole(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "o"

    def meanwhile(path: Path, content: bytes) -> None:
        """Another command begins and ends while this one writes its first file."""
        monkeypatch.undo()
        RunFolder.create(place, tiny.with_values(seed=1), "data").close()
        write_whole(path, content)

    monkeypatch.setattr("manyheads.runs.folder.write_whole", meanwhile)
    with pytest.raises(RunError, match="exists already") as error:
        RunFolder.create(place, tiny, "data")
    one_line(error)
    assert Experiment.load(place / "experiment.toml").seed == 1
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_of_runs_that_begin_at_the_same_moment_one_goes_on(tiny: Experiment, tmp_path: Path) -> None:
    for round_ in range(10):
        place = tmp_path / f"run-{round_}"
        made: list[RunFolder] = []

        def begin(number: int, place: Path = place, made: list[RunFolder] = made) -> None:
            made.append(RunFolder.create(place, tiny.with_values(seed=number), "data"))

        refused = at_once(3, begin)
        assert len(made) == 1
        assert [type(error) for error in refused] == [RunError, RunError]
        assert Experiment.load(place / "experiment.toml").clients == tiny.clients
        made[0].close()
    assert len(list(tmp_path.iterdir())) == 10


@pytest.mark.parametrize("name", [".", "..", "", "/", "empty/.."])
def test_a_new_run_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(RunError, match="cannot name a new folder"):
        check_new_folder(Path(name))
    with pytest.raises(RunError, match="cannot name a new folder"):
        check_new_folder(Path.cwd())
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_run_that_fails_leaves_what_others_put_into_its_folder(tiny: Experiment, tmp_path: Path) -> None:
    class Careless(SilentObserver):
        def started(self, ensemble: object, step: int) -> None:
            (tmp_path / "run" / "thesis.txt").write_text("precious")

    hopeless = tiny.with_values(**DIVERGES)
    with pytest.raises(TrainingError, match=r"is (nan|inf)"):
        train(hopeless, tmp_path / "run", observer=Careless())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_run_is_removed_with_all_that_it_made_and_nothing_else(run: Path) -> None:
    plot_run(run)
    (run / "evaluation.json").write_text("{}")
    check_removable(run)
    for place in (run, run / "plots", run / "checkpoints"):
        (place / "thesis.txt").write_text("precious")
        with pytest.raises(RunError, match=r"thesis\.txt: was not made by this run") as error:
            check_removable(run)
        one_line(error)
        (place / "thesis.txt").unlink()
    (run / "exports").mkdir()
    with pytest.raises(RunError, match="exports: was not made by this run"):
        check_removable(run)
    (run / "plots" / "thesis.txt").write_text("precious")
    remove_run(run)
    assert sorted(str(path.relative_to(run)) for path in run.rglob("*")) == ["exports", "plots", "plots/thesis.txt"]


def test_a_run_that_is_under_way_or_linked_is_not_removed(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="another process is running"), closing(RunFolder(run, "data")):
        check_removable(run)
    (tmp_path / "link").symlink_to(run)
    for refuse in (check_removable, remove_run):
        with pytest.raises(RunError, match="link: is a link"):
            refuse(tmp_path / "link")
    shutil.rmtree(run / "plots", ignore_errors=True)
    (run / "plots").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(RunError, match="plots: was not made by this run"):
        check_removable(run)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "no-run" / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="is not a run"):
        check_removable(tmp_path / "no-run")


def test_a_removal_that_was_killed_goes_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, left = Path.unlink, [3]

    def dying(self: Path, missing_ok: bool = False) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", dying)
    with pytest.raises(KeyboardInterrupt):
        remove_run(run)
    monkeypatch.undo()
    assert not os.path.lexists(run / "checkpoints" / "manifest.json")
    check_removable(run)
    remove_run(run)
    assert not run.exists()


def test_pictures_are_not_drawn_through_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "accuracy.png").write_text("precious")
    (run / "plots").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="plots: is a link"):
        plot_run(run)
    assert (tmp_path / "elsewhere" / "accuracy.png").read_text() == "precious"

"""Folders and command lines of an unlucky or hostile user: one line, exit status 2, nothing lost, nothing left."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from manyheads import Experiment, train
from manyheads.cli.commands import app
from manyheads.runs.read import read_events, read_summary
from tests.conftest import TINY

pytestmark = pytest.mark.usefixtures("blank_pictures")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: str | Path) -> str:
    """The one line that a mistake ends in; everything is as it was."""
    before = everything()
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.output
    assert lines[0].startswith("error: ")
    assert len(lines[0]) < 1_000
    assert everything() == before
    return lines[0]


def everything() -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in sorted(Path.cwd().parent.rglob("*"))}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "run"
    train(Experiment(**TINY), place)
    return place


@pytest.fixture
def run(made: Path) -> Path:
    """A run that has ended, in the working folder."""
    return Path(shutil.copytree(made, "run"))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("seeds", ["1", "2"])
@pytest.mark.parametrize("out", ["", " "])
def test_an_empty_folder_name_is_no_folder(tiny_file: Path, out: str, seeds: str) -> None:
    for command in (("run", tiny_file, "--seeds", seeds), ("frontier", tiny_file), ("demo",), ("reproduce", "heads")):
        assert "--out: is empty; give a folder" in refused(*command, "--out", out)
    assert "--results: is empty" in refused("reproduce", "heads", "--results", out)
    assert "OUT: is empty" in refused("pack", tiny_file, out)


@pytest.mark.parametrize("out", [".", "..", "nothing/..", "/"])
def test_a_run_needs_a_folder_of_its_own(tiny_file: Path, out: str) -> None:
    assert "cannot name a new folder; give one, such as runs/mine" in refused("run", tiny_file, "--out", out)


def test_the_working_folder_by_its_name(tiny_file: Path) -> None:
    assert "cannot name a new folder" in refused("run", tiny_file, "--out", Path.cwd())


@pytest.mark.parametrize("plot", ["", ".", "a.xyz", "picture", "/dev/full", "folder.png", "pipe.png", "none/a.png"])
def test_where_no_picture_can_go(tiny_file: Path, run: Path, plot: str) -> None:
    Path("folder.png").mkdir()
    os.mkfifo("pipe.png")
    for command in (("compare", run), ("split", tiny_file)):
        assert plot in refused(*command, "--plot", plot)


def test_a_finished_run_is_no_folder_for_runs(tiny_file: Path, run: Path) -> None:
    for command in (("frontier", tiny_file), ("run", tiny_file, "--seeds", "2"), ("demo",), ("reproduce", "heads")):
        assert "run: is itself a run; give another folder" in refused(*command, "--out", run)


@pytest.mark.parametrize("names", [("",), (" ",), ("heads", "")])
def test_a_table_without_a_name(names: tuple[str, ...]) -> None:
    assert "NAME: missing" in refused("reproduce", *names)


@pytest.mark.parametrize("client", ["²", "--5", "-5", "1" * 5_000, "٣", "1.5", "", "../../x", "nobody", "99999999999"])
def test_clients_that_do_not_exist(run: Path, client: str) -> None:
    assert "client = " in refused("export", run, f"--client={client}")


@pytest.mark.parametrize("device", ["", " ", "cpu0", "cuda:", "CPU"])
def test_devices_that_do_not_exist(run: Path, device: str) -> None:
    assert f"--device {device}: unknown device; cpu or cuda" in refused("evaluate", run, "--device", device)


@pytest.mark.parametrize("name", ["../../x", "/absolute", "..", ".", "", "a/b", "a\nb", "\x1b[2J", "x" * 300])
def test_a_name_leads_nowhere_else(run: Path, name: str) -> None:
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    summary["clients"][0]["name"] = f"{Path.cwd()}{name}" if name == "/absolute" else name
    path.write_text(json.dumps(summary))
    assert "give a folder with --out" in refused("export", run)
    assert call("export", run, "--out", "model").exit_code == 0
    assert {path.name for path in Path("model").iterdir()} == {"model.safetensors", "model.json", "README.md"}


def test_exports_do_not_go_through_a_link(run: Path) -> None:
    Path("elsewhere").mkdir()
    (run / "exports").symlink_to(Path("elsewhere").absolute())
    assert "exports: is a link" in refused("export", run)


@pytest.mark.parametrize("command", ["export", "evaluate"])
def test_a_full_disk_is_named_and_nothing_is_left(run: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    place = {"export": "run/exports/client-0", "evaluate": "run/evaluation.json"}[command]
    assert refused(command, run) == f"error: {place}: No space left on device"


@pytest.mark.parametrize("file", ["metrics.jsonl", "state-", "manifest.json", "summary.json", "experiment.toml", "png"])
def test_a_run_on_a_full_disk_names_the_file(tiny_file: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if file in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    result = call("run", tiny_file, "--out", "new", "--set", "training.steps=4", "--set", "evaluate.every=4")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: new")
    assert result.stderr.endswith(": No space left on device\n")
    assert file in result.stderr or file == "experiment.toml"  # of which there is a folder only when it is written
    assert not list(Path.cwd().rglob("*.partial"))
    assert Path("new").exists() == (file != "experiment.toml")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["compare", "run"]], ids=" ".join)
def test_a_full_disk_behind_standard_output(run: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "manyheads", *arguments]
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert done.stderr == "error: standard output: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(tiny_file: Path, closed: str) -> None:
    """A file of the run would get the number of a stream, and what is printed would end up in it."""
    command = f'exec "$0" -m manyheads run "$1" --set training.steps=4 --set evaluate.every=4 --out run {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable, tiny_file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert read_events(Path("run"))
    assert read_summary(Path("run")).steps == 4


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "libtorch_cpu.so: failed to map se"),
        (ImportError("libgomp.so: cannot allocate memory in static TLS block"), "libgomp.so: cannot allocate memory"),
        (SystemError("error return without exception set"), "error return without exception set"),
        (MemoryError(), "there is too little"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_too_little_memory_for_a_library(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    def too_little(seed: int) -> None:
        raise error

    unlimited, here = resource.RLIM_INFINITY, "manyheads.cli.runs.demo_runs"
    monkeypatch.setattr(here, too_little)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10**12, unlimited))
    line = refused("demo")
    assert line.startswith(f"error: out of memory: {told}")
    assert ("ulimit -v" in line) is not isinstance(error, MemoryError)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (unlimited, unlimited))
    assert isinstance(call("demo").exception, SystemError) is isinstance(error, SystemError)
    monkeypatch.setattr(here, lambda seed: (_ for _ in ()).throw(ImportError("no such name")))
    assert isinstance(call("demo").exception, ImportError)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [30_000, 300_000])
def test_a_small_limit_of_memory(tiny_file: Path, kilobytes: int) -> None:
    command = f'ulimit -v {kilobytes} && exec "$0" -m manyheads run "$1"'
    done = subprocess.run(["sh", "-c", command, sys.executable, tiny_file], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: out of memory: ")
    assert not Path("runs").exists()


@pytest.mark.usefixtures("short_demo")
def test_the_demo_leaves_what_it_did_not_make() -> None:
    assert call("demo").exit_code == 0
    demo = Path("runs/demo")
    for own in (demo / "mhd" / "thesis.txt", demo / "separate" / "checkpoints" / "state-best.safetensors"):
        own.write_text("precious")
        assert f"{own}: was not made by this run" in refused("demo")
        own.unlink()
    shutil.move(demo / "supervised", "theirs")
    (demo / "supervised").symlink_to(Path("theirs").absolute())
    assert "supervised: is a link" in refused("demo")
    (demo / "supervised").unlink()
    (demo / "supervised").mkdir()
    (demo / "supervised" / "thesis.txt").write_text("precious")
    assert "supervised: is not a run" in refused("demo")
    shutil.rmtree(demo / "supervised")
    assert call("demo").exit_code == 0


@pytest.mark.usefixtures("short_demo")
def test_the_demo_leaves_other_runs_in_its_usual_folder(tiny_file: Path) -> None:
    short = ("--set", "training.steps=4", "--set", "evaluate.every=4")
    assert call("run", tiny_file, *short, "--out", "runs/demo/mhd").exit_code == 0
    assert "runs/demo/mhd: is not a run of the demo, so it is left as it is" in refused("demo")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run e.toml --seeds 0", "'--seeds'"),
        ("run e.toml --stepps 4", "No such option: --stepps"),
        ("run", "Missing argument 'EXPERIMENT.toml'"),
        ("run e.toml another.toml", "unexpected extra argument"),
        ("rum e.toml", "No such command 'rum'"),
        ("run e.toml --out", "'--out' requires an argument"),
    ],
)
def test_mistakes_in_arguments_name_the_help(line: str, said: str) -> None:
    told = refused(*line.split())
    assert said in told
    assert told.endswith(" --help")


def test_a_run_that_fails_before_its_first_save_leaves_no_folder() -> None:
    """A failed run leaves none of the folders behind that it made, parents included."""
    Path("e.toml").write_text(str(Experiment(**TINY).with_values(training={"learning_rate": 1e6, "warmup_steps": 0})))
    assert "learning_rate" in refused("run", "e.toml", "--out", "runs/deeper/one")


def test_seeds_that_are_too_large_are_refused_before_anything_is_trained(tiny_file: Path) -> None:
    last = str(2**63 - 1)
    for command in ("run", "frontier"):
        told = refused(command, tiny_file, "--set", f"seed={last}", "--seeds", "2")
        assert f"--seeds 2: with seed = {last}, the last one is a number of more than 64 bits; lower seed" in told
    assert "seed: a number of more than 64 bits" in refused("demo", "--seed", str(10**30))


@pytest.mark.usefixtures("short_demo")
def test_a_picture_of_the_users_is_not_replaced(tiny_file: Path) -> None:
    """A picture of an earlier command is: see also tests/report/test_mark.py."""
    for command, picture in ((("demo",), "demo.png"), (("frontier", tiny_file), "frontier.png")):
        place = Path("own") / picture
        place.parent.mkdir(exist_ok=True)
        place.write_text("precious")
        assert f"own/{picture}: is not a picture that manyheads drew, so" in refused(*command, "--out", "own")
        place.unlink()


def test_leaving_at_once_names_the_run_that_continues(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("manyheads.runs.folder.RunFolder.save", twice)
    left = call("run", tiny_file, "--out", "mine")
    assert left.exit_code == 130
    assert left.stderr == "\nleft at once; continue from the last save with: manyheads resume mine\n"
    assert Path("mine/experiment.toml").exists()


def test_leaving_before_there_is_a_run_names_none(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyheads.setup.resolve.load", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    left = call("run", tiny_file, "--out", "mine")
    assert (left.exit_code, left.stderr) == (130, "\nstopped\n")
    assert not Path("mine").exists()

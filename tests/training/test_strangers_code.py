"""Going on with a run whose code is a stranger's, and with one's own."""

import shutil
import sys
from pathlib import Path

import pytest

from manyheads import ConfigurationError, Experiment, RunError, resume, train
from manyheads.provenance import STATE_VARIABLE
from manyheads.studies.reevaluate import reevaluate
from manyheads.training.observer import SilentObserver
from tests.strangers import CODE, IN_ALGORITHM, IN_CONFIDENCE, NAME, SHORT, forget_modules, make_run, ran


@pytest.fixture
def unfinished(stranger: Path) -> Path:
    (stranger / "summary.json").unlink()
    return stranger


def own_run(tiny: Experiment, observer: SilentObserver | None = None) -> Path:
    """A run of this user's, with code in the working folder."""
    Path("own_lab.py").write_text(CODE)
    train(tiny.with_values(**SHORT, model={"backbone": "own_lab:net"}), "runs/own", observer=observer)
    Path("runs/own/summary.json").unlink()
    return Path("runs/own")


def test_a_stranger_s_code_is_not_run(unfinished: Path) -> None:
    with pytest.raises(RunError) as refused:
        resume(unfinished)
    code = unfinished.absolute() / "code.py"
    assert str(refused.value).startswith(
        f'runs/stranger: model.backbone = "{NAME}:net" would import {code}, and you did not make this folder here; '
    )
    assert not ran(unfinished)
    assert not (unfinished / "summary.json").exists()
    assert resume(unfinished, trust_code=True).summary["steps"] == 2
    assert ran(unfinished)


def test_a_stranger_s_algorithm_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Path) -> None:
    shutil.rmtree(stranger)
    shutil.copytree(make_run(tmp_path / "theirs", IN_ALGORITHM), stranger)
    (stranger / "summary.json").unlink()
    with pytest.raises(RunError, match=f'algorithm.name = "{NAME}:Alone" would import'):
        resume(stranger)
    assert not ran(stranger)
    assert resume(stranger, trust_code=True).summary["steps"] == 2


def test_a_stranger_s_confidence_is_not_run(tmp_path: Path, stranger: Path) -> None:
    shutil.rmtree(stranger)
    shutil.copytree(make_run(tmp_path / "theirs", IN_CONFIDENCE), stranger)
    line = f'^runs/stranger: algorithm.confidence = "{NAME}:surest" would import {stranger.absolute()}/code.py, and you'
    with pytest.raises(RunError, match=line):
        reevaluate(stranger)
    (stranger / "summary.json").unlink()
    with pytest.raises(RunError, match=line):
        resume(stranger)
    assert not ran(stranger)
    assert resume(stranger, trust_code=True).summary["steps"] == 2
    assert ran(stranger)


def test_a_manifest_is_checked_before_code_is_imported(unfinished: Path) -> None:
    manifest = unfinished / "checkpoints" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 2', '"step": 3'))
    with pytest.raises(RunError, match=r"manifest.json: "):
        resume(unfinished, trust_code=True)
    assert not ran(unfinished)


def test_a_key_that_json_has_no_word_for(unfinished: Path) -> None:
    (unfinished / "checkpoints" / "manifest.json").unlink()
    experiment = unfinished / "experiment.toml"
    experiment.write_text(experiment.read_text().replace("[algorithm]\n", "[algorithm]\nsince = 2026-01-01\n"))
    with pytest.raises(ConfigurationError, match=r"^algorithm\.since: unknown key"):
        resume(unfinished, trust_code=True)


def test_one_s_own_run_goes_on_unasked(tiny: Experiment, stranger: Path) -> None:
    folder = own_run(tiny)
    assert resume(folder).summary["steps"] == 2


def test_a_stranger_s_folder_in_the_place_of_one_s_own(tiny: Experiment, stranger: Path) -> None:
    """A stranger's folder with the path of a run that was made here is not trusted, whatever code it names."""
    folder = own_run(tiny)
    experiment = folder / "experiment.toml"
    mine = experiment.read_text()
    experiment.write_text(mine.replace("own_lab:net", f"{NAME}:net"))
    (folder / "checkpoints" / "manifest.json").unlink()
    with pytest.raises(RunError, match="you did not make this folder here"):
        resume(folder)
    experiment.write_text(mine.replace("seed = 0", "seed = 1"))
    with pytest.raises(RunError, match="you did not make this folder here"):
        resume(folder)
    experiment.write_text(mine)
    shutil.rmtree(folder / "checkpoints")  # whose manifest is gone
    assert resume(folder).summary["steps"] == 2


def test_a_stranger_s_file_in_the_place_of_one_s_own(
    tiny: Experiment, stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is found under the same name, and inside the run folder."""
    folder = own_run(tiny).absolute()
    mine = Path("own_lab.py").absolute()
    forget_modules()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path != str(mine.parent)])
    Path("own_lab.py").write_text(CODE)
    with pytest.raises(RunError, match=f"would import {folder}/own_lab.py, and you made this folder with {mine}; "):
        resume(folder)
    assert not ran(folder)


def test_a_run_that_cannot_be_recorded_says_so(
    tiny: Experiment, stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listener(SilentObserver):
        said = ""

        def noted(self, text: str) -> None:
            self.said += text

    monkeypatch.setenv(STATE_VARIABLE, str(Path("runs/stranger/code.py/state").absolute()))
    listener = Listener()
    folder = own_run(tiny, listener)
    assert "so what this run imports or fetches is not recorded as yours" in listener.said
    with pytest.raises(RunError, match="--trust-code"):
        resume(folder)

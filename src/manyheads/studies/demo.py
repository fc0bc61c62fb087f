"""The demonstration: its three experiments, and the sentence at its end."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from manyheads.config.experiment import Experiment
from manyheads.errors import ConfigurationError
from manyheads.report.beside import recommended_accuracy
from manyheads.runs.read import check_no_run, read_experiment
from manyheads.runs.remove import ADVICE, check_removable, remove_run
from manyheads.runs.summary import Summary

DEMO_OUT = Path("runs/demo")


def demo_experiment() -> Experiment:
    """Return the experiment in which eight clients teach each other."""
    return Experiment.from_toml(files("manyheads").joinpath("studies/demo.toml").read_text(), "demo.toml")


def demo_runs(seed: int) -> dict[str, Experiment]:
    """Return three experiments: the same clients alone, together, and as one model with all their private data."""
    mhd = demo_experiment().with_values(seed=seed)
    separate = mhd.with_values(algorithm={"name": "separate"})
    return {"separate": separate, "mhd": mhd, "supervised": separate.with_values(clients=1)}


def remove_earlier_demo(out: Path, runs: Mapping[str, Experiment]) -> None:
    """Remove what an earlier demo left; if anything else lies there, remove nothing."""
    check_no_run(out)
    for name, experiment in runs.items():
        if not _is_free_or_ours(out / name, experiment):
            raise ConfigurationError(f"{out / name}: is not a run of the demo, so it is left as it is; {ADVICE}")
        check_removable(out / name)
    for name in runs:
        remove_run(out / name)


def _is_free_or_ours(folder: Path, experiment: Experiment) -> bool:
    if not folder.is_dir() or not any(folder.iterdir()) or not (folder / "experiment.toml").is_file():
        return True  # `check_removable` says what is wrong, if anything
    from manyheads.setup.resolve import resolve

    return read_experiment(folder).fingerprint(seed=False) == resolve(experiment).experiment.fingerprint(seed=False)


def demo_text(summaries: Mapping[str, Summary]) -> str:
    """Say in one sentence what the demonstration shows."""
    alone, together, pooled = (summaries[name] for name in ("separate", "mhd", "supervised"))
    before, after = alone.shared_accuracy[0], together.shared_accuracy[-1]
    own_before, own_after = (recommended_accuracy(run, "private") for run in (alone, together))
    return (
        f"A client that trains alone recognises {100 * before:.0f} % of all digits. Taught by what the others' models "
        f"say about unlabelled digits, its last head recognises {100 * after:.0f} %, and the head "
        f"recommended for the client's own digits {100 * own_after:.0f} % of these ({100 * own_before:.0f} % alone). "
        f"One model with everybody's private data reaches {100 * pooled.shared_accuracy[0]:.0f} %."
    )

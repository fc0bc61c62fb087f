"""The loop over windows."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from manyheads import ConfigurationError, Experiment, TrainingError, load_model, resume, train
from manyheads.engine.plain import exchange
from manyheads.errors import Interrupted
from manyheads.runs.events import Event
from manyheads.runs.read import read_summary
from manyheads.setup.build import Ensemble, assemble
from manyheads.training.loop import windows
from manyheads.training.observer import SilentObserver
from manyheads.training.result import Result
from tests.conftest import DIVERGES, TINY
from tests.runs.conftest import StopAt

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ended() -> Result:
    """A run of the tiny experiment, to be read only."""
    return train(Experiment(**TINY))


@pytest.mark.slow
def test_a_run_imports_no_more_than_it_needs() -> None:
    """A second each for SymPy and scikit-learn is as much as a small run takes."""
    script = (
        "import sys; from tests.conftest import TINY; from manyheads import Experiment, train\n"
        "train(Experiment(**TINY))\n"
        "print({'sympy', 'sklearn', 'scipy', 'pandas', 'matplotlib'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_windows_meet_at_every_edge() -> None:
    made = [(w.start, w.stop) for w in windows(0, 20, range(0, 99, 6), range(0, 20, 4), {10})]
    assert [stop for _, stop in made] == [4, 6, 8, 10, 12, 16, 18, 20]
    assert [start for start, _ in made] == [0, 4, 6, 8, 10, 12, 16, 18]
    assert [(w.start, w.stop) for w in windows(16, 20, range(0, 20, 6), ())] == [(16, 18), (18, 20)]
    assert list(windows(20, 20, [6, 20])) == []


def weights(result: Result) -> list[bytes]:
    return [client.state.values.numpy().tobytes() for client in result.clients]


def test_where_edges_lie_does_not_change_the_weights(tiny: Experiment, ended: Result) -> None:
    """Evaluating or recording more often is not about numbers."""
    often = tiny.with_values(training={"log_every": 1}, evaluate={"every": 3})
    assert weights(train(often)) == weights(ended)


@pytest.mark.parametrize("stop_after", [1, 13, 25, 50])
def test_stopped_and_resumed_equals_uninterrupted(
    tiny: Experiment, ended: Result, tmp_path: Path, stop_after: int
) -> None:
    with pytest.raises(Interrupted):
        train(tiny, tmp_path / "run", observer=StopAt(stop_after))
    resumed = resume(tmp_path / "run")
    assert weights(resumed) == weights(ended)


@pytest.mark.parametrize(
    "graph",
    [
        {"name": "cycle"},
        {"name": "islands", "size": 2},
        {"name": "edges", "edges": [[0, 1], [1, 0], [2, 3], [3, 1]]},
    ],
)
def test_the_graph_is_obeyed(tiny: Experiment, graph: dict[str, object]) -> None:
    """Perturb one client's start: after one exchange exactly those that learn from it differ."""
    experiment = tiny.with_values(clients=4, graph=graph, training={"steps": 4}, evaluate={"every": 4})

    def run(perturbed: int | None) -> list[torch.Tensor]:
        ensemble = assemble(experiment)
        if perturbed is not None:
            ensemble.clients[perturbed].state.values.mul_(1.01)
        exchange(ensemble, step=0)
        for client in ensemble.clients:
            batches = client.batches(0, 4, ensemble.resolved.algorithm.plan(client, 0, 4))
            for step in range(4):
                client.step(ensemble.resolved.algorithm.losses, batches.at(step), step, 0.05)
        return [client.state.values.clone() for client in ensemble.clients]

    usual, learns_from = run(None), assemble(experiment).resolved.graph
    for source in range(4):
        changed = {i for i, (a, b) in enumerate(zip(usual, run(source), strict=True)) if not torch.equal(a, b)}
        assert changed == {source} | {i for i in range(4) if source in learns_from.neighbours(i, 0)}


def test_knowledge_travels_beyond_one_hop(tiny: Experiment) -> None:
    """In a cycle 0 learns from 1 and 1 from 2: a change in 2 reaches 0 at the second exchange, and not before."""
    experiment = tiny.with_values(
        clients=4, graph={"name": "cycle"}, algorithm={"pool_size": 1, "pool_every": 4, "pool_start": "empty"}
    )

    def pools_after(steps: int) -> list[list[bytes]]:
        short = experiment.with_values(training={"steps": steps + 1})
        made = []
        for scale in (1.0, 1.01):
            ensemble = assemble(short)
            ensemble.clients[2].state.values.mul_(scale)
            _train_by_hand(ensemble, steps)
            made.append([client.state.values.numpy().tobytes() for client in ensemble.clients])
        return made

    for steps, reached in ((4, {2}), (8, {1, 2}), (12, {0, 1, 2}), (16, {0, 1, 2, 3})):
        usual, perturbed = pools_after(steps)
        assert {i for i in range(4) if usual[i] != perturbed[i]} == reached


def _train_by_hand(ensemble: Ensemble, steps: int) -> None:
    for step in range(steps):
        if step in ensemble.resolved.algorithm.exchange_steps(steps):
            exchange(ensemble, step)
        for client in ensemble.clients:
            plan = ensemble.resolved.algorithm.plan(client, step, step + 1)
            client.step(ensemble.resolved.algorithm.losses, client.batches(step, step + 1, plan).at(step), step, 0.05)


@pytest.mark.parametrize(
    "knobs",
    [
        {"select": "random"},
        {"select": "all"},
        {"confidence": "entropy", "same_level": True, "self_target": True},
        {"confidence": "margin", "targets_per_step": 2},
        {"pool_start": "empty", "nu_emb": 0.0},
    ],
)
def test_every_variant_trains(tiny: Experiment, ended: Result, knobs: dict[str, object]) -> None:
    variant = tiny.with_values(algorithm=knobs)
    found = weights(train(variant))
    assert found == weights(train(variant))
    assert found != weights(ended)


def test_nothing_is_exchanged_when_nobody_will_use_it(ended: Result) -> None:
    """Edges at 4, 8, 12 and 16; at the end, 20, no step would follow. The first filling shows two neighbours."""
    size = ended.clients[0].snapshot(0).nbytes
    assert ended.summary["bytes_received"] == [6 * size] * 3


def test_a_result_says_what_came_of_it_and_shows_no_data(ended: Result) -> None:
    said = repr(ended)
    assert said.startswith("Result(mhd, 3 clients, 20 steps: private ")
    assert len(said) < 200


def test_two_clients_teach_each_other(tiny: Experiment) -> None:
    assert len(train(tiny.with_values(clients=2)).clients) == 2


def test_one_client_alone_is_supervised(tiny: Experiment) -> None:
    result = train(tiny.with_values(clients=1, algorithm={"name": "separate"}))
    assert result.summary["clients"][0]["samples"] == round(0.6 * 1437)


def test_colour_images_with_views(tiny: Experiment, small_npz: Path) -> None:
    primary = {"assignment": "random", "per_client": 3}
    data = {"source": "npz", "path": str(small_npz), "augment": "crop-flip", "primary_labels": primary}
    result = train(tiny.with_values(data=data, training={"steps": 60}, evaluate={"every": 60}))
    assert result.summary["private_accuracy"][0] > 0.7


def test_a_loss_that_is_not_a_number_names_step_client_and_term(tiny: Experiment, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as error:
        train(tiny.with_values(**DIVERGES), tmp_path / "run")
    found = re.fullmatch(
        r'step (\d+), client-\d: the loss term "\w+" is (nan|inf); lower training.learning_rate .*', str(error.value)
    )
    assert found
    assert int(found.group(1)) < 20
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_numbers_are_noticed_before_they_are_used(tiny: Experiment) -> None:
    class Poison(SilentObserver):
        def started(self, ensemble: Ensemble, step: int) -> None:
            self.clients, self.taken = ensemble.clients, 0

        def progressed(self, client_steps: int) -> None:
            self.taken += client_steps
            if self.taken == 12:  # client 2 has taken its last step of the window
                self.clients[2].state.values[0] = float("nan")

    with pytest.raises(TrainingError, match="step 3, client-2: a weight is not finite"):
        train(tiny, observer=Poison())


def test_a_run_that_diverges_after_a_save_keeps_its_folder(tiny: Experiment, tmp_path: Path) -> None:
    class Poison(SilentObserver):
        def started(self, ensemble: Ensemble, step: int) -> None:
            self.clients = ensemble.clients

        def happened(self, event: Event) -> None:
            if event["step"] == 8:
                self.clients[1].state.values.fill_(float("inf"))

    with pytest.raises(TrainingError):
        train(tiny.with_values(training={"save_seconds": 0.0}), tmp_path / "run", observer=Poison())
    assert (tmp_path / "run" / "checkpoints" / "manifest.json").exists()


def test_distillation_shares_what_separate_training_cannot() -> None:
    """The point of it all, in small: the last head knows classes that its client has hardly seen."""
    demo = Experiment.load(Path(__file__).parents[2] / "src" / "manyheads" / "studies" / "demo.toml")
    short = demo.with_values(clients=4, training={"steps": 240}, evaluate={"every": 240})
    together = train(short).summary
    alone = train(short.with_values(algorithm={"name": "separate"})).summary
    assert together["shared_accuracy"][-1] > alone["shared_accuracy"][0] + 0.12
    assert together["private_accuracy"][0] > alone["private_accuracy"][0] - 0.03


def test_a_classifier_takes_the_images_it_was_made_for(tiny_file: Path, ended: Result) -> None:
    classify = train(tiny_file).classifier(client=1)
    images = np.zeros((3, 8, 8, 1), dtype=np.uint8)
    assert classify(images).shape == (3, 10)
    assert torch.equal(classify(images), classify(torch.from_numpy(images)))
    for wrong in (images.astype(np.float32), images[:, :4], images[0], images.transpose(0, 3, 1, 2)):
        with pytest.raises(ValueError, match="needed: uint8"):
            classify(wrong)
    with pytest.raises(ConfigurationError, match="clients 0 to 2"):
        ended.classifier(client=99)


@pytest.mark.parametrize("seen", ["embedding", "feature_map"])
def test_the_returned_clients_and_a_loaded_model_agree(tiny: Experiment, tmp_path: Path, seen: str) -> None:
    result = train(tiny.with_values(model={"heads_see": seen}), tmp_path / "run")
    data = assemble(tiny).resolved.dataset
    images = torch.from_numpy(data.test.images)
    for client in (0, 2):
        for head in range(3):
            classify = load_model(tmp_path / "run", client=client, head=head)
            assert isinstance(classify, torch.nn.Module)
            said = classify(images).argmax(-1).numpy()
            accuracy = float(np.mean(said == data.test.known_labels))
            assert accuracy == pytest.approx(read_summary(tmp_path / "run")["clients"][client]["shared_accuracy"][head])
            direct = result.classifier(client, head)
            assert torch.equal(direct(images), classify(images))
    before = result.clients[0].state.values.clone()
    result.clients[0].model(torch.randn(4, 1, 8, 8))
    assert torch.equal(before, result.clients[0].state.values), "using a returned client must not change it"
    chosen = load_model(tmp_path / "run", client=1, task="private")
    assert chosen.head == result.summary["clients"][1]["deploy"]["private"]

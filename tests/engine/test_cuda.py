"""The captured step against the plain one: the same draws and, up to rounding, the same numbers.

Without a GPU the same code takes its steps without a graph, so that all of it but the capture is tested anywhere.
"""

import contextlib
import dataclasses
import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from manyheads import Experiment
from manyheads.algorithms.base import Algorithm
from manyheads.algorithms.separate import Separate
from manyheads.client.client import Batch, Client
from manyheads.client.plan import WindowPlan
from manyheads.config.types import CHECKED
from manyheads.data import batches
from manyheads.engine.base import Window
from manyheads.engine.cuda.host_reads import NoPlan, NotOnHost
from manyheads.engine.cuda.student import Student
from manyheads.engine.cuda.trainer import CudaTrainer, _stretches
from manyheads.engine.plain import LocalEngine, PlainTrainer
from manyheads.engine.precision import computing_in
from manyheads.engine.worker import Trainer
from manyheads.errors import TrainingError
from manyheads.setup.build import Ensemble, assemble
from manyheads.training.loop import windows
from tests.contracts import CASES, experiment

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def with_algorithm(ensemble: Ensemble, algorithm: Algorithm) -> Ensemble:
    """The same clients under another algorithm."""
    return dataclasses.replace(ensemble, resolved=dataclasses.replace(ensemble.resolved, algorithm=algorithm))


def run(
    chosen: Experiment | Ensemble, trainer: Trainer, device: str, dtype: torch.dtype, precision: str = "float32"
) -> tuple[Tensor, Ensemble]:
    e = chosen if isinstance(chosen, Ensemble) else assemble(chosen, device, dtype)
    engine, found = LocalEngine(e, trainer, precision), []
    engine.exchange(step=0)
    for window in windows(
        0, e.resolved.experiment.training.steps, e.resolved.exchange_steps, e.resolved.averaging_steps
    ):
        found.append(engine.train(window, lambda _: None).values)
        engine.exchange(window.stop)
    return torch.cat(found, 1), e


def apart(one: Tensor, other: Tensor) -> float:
    return float(((one - other).abs() / one.abs().clamp(min=1e-3)).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_captured_steps_are_the_plain_ones_in_float64(case: str, device: str) -> None:
    expected, reference = run(experiment(case), PlainTrainer(), "cpu", torch.float64)
    if case == "models of others" and device == "cuda":  # its functional dropout draws otherwise there
        expected, reference = run(experiment(case), PlainTrainer(), device, torch.float64)
    losses, ensemble = run(experiment(case), CudaTrainer("float32"), device, torch.float64)
    assert apart(expected, losses) < 1e-9
    for ours, theirs in zip(ensemble.clients, reference.clients, strict=True):
        assert torch.allclose(ours.state.values.cpu(), theirs.state.values.cpu(), rtol=1e-7, atol=1e-9)
        assert torch.allclose(ours.momentum.cpu(), theirs.momentum.cpu(), rtol=1e-7, atol=1e-9)
        for name, tensor in ours.state.integers.items():
            assert torch.equal(tensor.cpu(), theirs.state.integers[name].cpu())
        assert ours.memory.keys() == theirs.memory.keys()
        for name, kept in ours.memory.items():
            assert torch.allclose(kept.cpu(), theirs.memory[name].cpu(), rtol=1e-7, atol=1e-9), name


CLOSE = ["mhd", "fedmd", "averaging", "dropout", "models of different widths", "heads that see feature maps"]


@pytest.mark.gpu
@pytest.mark.parametrize("case", CLOSE)
def test_ten_steps_in_float32_on_a_gpu(case: str) -> None:
    short = experiment(case)
    if case == "dropout":  # not two samples at a time, and slower heads: such steps drift apart on a CPU, too
        batches_of_8 = {"batch_size": 8, "public_batch_size": 8}
        short = short.with_values(training=batches_of_8, algorithm={"own_labels": 0.1})
    expected, _ = run(short, PlainTrainer(), "cpu", torch.float32)
    losses, _ = run(short, CudaTrainer("float32"), "cuda", torch.float32)
    assert apart(expected[:, :10], losses[:, :10]) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("seen", ["embedding", "feature_map"])
def test_bfloat16_learns_as_well(tiny: Experiment, seen: str) -> None:
    longer = tiny.with_values(training={"steps": 60}, model={"heads_see": seen})
    full, _ = run(longer, CudaTrainer("float32"), "cuda", torch.float32)
    few, _ = run(longer, CudaTrainer("bf16"), "cuda", torch.float32, "bf16")
    assert few[:, -10:, 0].mean() == pytest.approx(float(full[:, -10:, 0].mean()), rel=0.1)


@pytest.mark.parametrize("device", DEVICES)
def test_how_many_steps_are_loaded_at_once_changes_nothing(
    tiny: Experiment, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = run(tiny, CudaTrainer("float32"), device, torch.float64)
    monkeypatch.setattr("manyheads.engine.cuda.trainer._capacity", lambda *_: 3)
    parts, _ = run(tiny, CudaTrainer("float32"), device, torch.float64)
    assert apart(whole, parts) < 1e-12


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("augment", ["none", "crop-flip", "resized-crop-flip"])
def test_images_that_do_not_fit_are_streamed(
    tiny: Experiment, device: str, augment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tiny.with_values(data={"augment": augment})
    expected, _ = run(shown, PlainTrainer(), "cpu", torch.float64)
    monkeypatch.setattr(batches, "DEVICE_SHARE", 0.0)
    monkeypatch.setattr("manyheads.engine.cuda.trainer._capacity", lambda *_: 3)
    if device == "cpu":
        monkeypatch.setattr(batches.Pixels, "on_device", False)
    losses, _ = run(shown, CudaTrainer("float32"), device, torch.float64)
    assert apart(expected, losses) < 1e-9


def test_images_are_read_while_the_device_is_busy(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images for the next stretch are requested before the steps of this one, and are there when they are loaded."""
    happened: list[str] = []

    def noting(name: str) -> Any:
        done = getattr(Student, name)

        def noted(self: Student, *args: Any) -> Any:
            happened.append(name)
            return done(self, *args)

        return noted

    for name in ("load", "fetch_ahead", "step"):
        monkeypatch.setattr(Student, name, noting(name))
    fetched: list[str] = []
    fetch = batches.Pixels.fetch

    def counted(self: batches.Pixels, samples: Tensor) -> Tensor:
        fetched.append(threading.current_thread().name)
        return fetch(self, samples)

    monkeypatch.setattr(batches.Pixels, "fetch", counted)
    monkeypatch.setattr(batches.Pixels, "on_device", False)
    monkeypatch.setattr("manyheads.engine.cuda.trainer._capacity", lambda *_: 2)
    run(tiny.with_values(training={"steps": 8}), CudaTrainer("float32"), "cpu", torch.float64)
    assert happened == (["load"] * 3 + ["fetch_ahead"] * 3 + ["step"] * 6) * 4
    images = [name for name in fetched if name.startswith("images")]
    assert len(images) == 3 * 3 * 2  # of three clients, for all but the first stretch, both sets
    assert len(fetched) - len(images) == 3 * 2  # the first stretch


def test_short_stretches_are_drawn_together(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange at every second step needs no more draws than none; after a return to a save, due steps are drawn."""
    drawn: list[tuple[int, int]] = []
    window = batches.Samples.window

    def noted(self: batches.Samples, start: int, stop: int, batch_size: int) -> batches.WindowRows:
        drawn.append((start, stop))
        return window(self, start, stop, batch_size)

    monkeypatch.setattr(batches.Samples, "window", noted)
    often = tiny.with_values(data={"augment": "crop-flip"}, algorithm={"pool_every": 2}, training={"steps": 9})
    monkeypatch.setattr("manyheads.engine.cuda.trainer._capacity", lambda *_: 6)
    _, ensemble = run(often, CudaTrainer("float32"), "cpu", torch.float64)
    both, clients = 2, len(ensemble.clients)
    assert sorted(drawn) == [(0, 6)] * both * clients + [(6, 9)] * both * clients

    client, algorithm = ensemble.clients[0], ensemble.resolved.algorithm
    student = Student(client, algorithm, None, 6, torch.zeros(1, dtype=torch.int64))
    for start, stop in ((4, 6), (0, 2), (1, 3), (5, 7)):
        student.load(start, stop, algorithm.plan(client, start, stop))
        for name, samples, size in (
            ("private", client.private, client.training.batch_size),
            ("public", client.public, client.training.public_batch_size),
        ):
            assert samples is not None
            expected = window(samples, start, stop, size)
            shown = student.rows(name, samples)  # of the first step
            assert torch.equal(shown.samples, expected.samples_SB[0])
            assert torch.equal(shown.view_numbers, expected.view_numbers_SB[0])
            assert torch.equal(shown.images, samples.rows(expected, 0, torch.float64).images)


def test_a_loss_that_is_not_a_number_is_found_where_it_was_first(tiny: Experiment) -> None:
    """A client that loses its mind, and those that it teaches afterwards: the same steps, clients and terms."""
    bad = []
    for trainer in (PlainTrainer(), CudaTrainer("float32")):
        ensemble = assemble(tiny, dtype=torch.float64)
        ensemble.clients[1].state.values[:100] = torch.nan
        losses, _ = run(ensemble, trainer, "cpu", torch.float64)
        bad.append(~torch.isfinite(losses))
    assert bad[0].any()
    assert not bad[0].all()
    assert torch.equal(bad[0], bad[1])


def test_stretches_hold_one_phase_and_no_more_than_fits() -> None:
    phases = torch.tensor([0, 0, 0, 1, 1, 0, 0, 0, 0, 0]).numpy()
    assert list(_stretches(Window(5, 15), [phases], 4)) == [(5, 8), (8, 10), (10, 14), (14, 15)]
    assert list(_stretches(Window(0, 5), [], 4)) == [(0, 4), (4, 5)]
    assert list(_stretches(Window(5, 15), [phases, phases[::-1]], 9)) == [(5, 8), (8, 10), (10, 12), (12, 15)]


@dataclass(frozen=True, config=CHECKED)
class Phases(Separate):
    """Each client has a rhythm of its own; in every second phase nothing but the heads is trained."""

    def plan(self, client: Client, start: int, stop: int) -> WindowPlan:
        return WindowPlan(phase=np.arange(start, stop) // (2 + client.index) % 2)

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        if batch.phase == 0:
            return super().losses(client, batch, step)
        with torch.no_grad():
            _, embedding_BE = client.model(batch.private.images)
        heads: Any = getattr(client.model, "module", client.model).heads  # of a captured step: its shadow's
        logits_BHC = heads(embedding_BE).unflatten(1, client.model.shape_HC)
        return {"cross_entropy": torch.nn.functional.cross_entropy(logits_BHC[:, 0], batch.labels)}


@pytest.mark.parametrize("device", DEVICES)
def test_phases_of_an_algorithm(tiny: Experiment, device: str) -> None:
    """What one phase leaves behind does not affect the next, and each client has its own phase."""
    found = []
    for trainer in (PlainTrainer(), CudaTrainer("float32")):
        made = assemble(tiny.with_values(algorithm={"name": "separate"}), device, torch.float64)
        found.append(run(with_algorithm(made, Phases()), trainer, device, torch.float64)[0])
    assert apart(*found) < 1e-9


@pytest.mark.parametrize("device", DEVICES)
def test_samples_of_a_teacher_may_know_of_each_other(tiny: Experiment, device: str) -> None:
    mixed = tiny.with_values(model={"backbone": ["tests.models.lab:Untracked", "tests.models.lab:Untracked", "cnn"]})
    expected, _ = run(mixed, PlainTrainer(), device, torch.float64)
    losses, _ = run(mixed, CudaTrainer("float32"), device, torch.float64)
    assert apart(expected, losses) < 1e-9


def test_a_plan_that_is_not_there_says_so() -> None:
    for name in ("targets", "public", "view", "private_step", "phase", "arrays"):
        with pytest.raises(NotOnHost, match=rf"losses reads batch\.plan\.{name};"):
            getattr(NoPlan(), name)


def test_pixels_of_a_step_do_not_outlive_it(tiny: Experiment) -> None:
    made: list[weakref.ref[Batch]] = []

    @dataclass(frozen=True, config=CHECKED)
    class Watched(Separate):
        def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
            made.append(weakref.ref(batch))
            return super().losses(client, batch, step)

    ensemble = assemble(tiny.with_values(algorithm={"name": "separate"}))
    gc.disable()
    try:
        run(with_algorithm(ensemble, Watched()), CudaTrainer("float32"), "cpu", torch.float32)
        assert made
        assert all(batch() is None for batch in made)
    finally:
        gc.enable()


def test_architectures_are_tried_each(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one class may differ."""
    small = "tests.models.lab:Small"
    ensemble = assemble(tiny.with_values(model={"backbone": [small, small, small], "width": [4, 6, 4]}))
    trainer, tried = CudaTrainer("float32"), []
    monkeypatch.setattr("manyheads.engine.cuda.trainer.why_not_captured", lambda step, *_: tried.append(step))
    trainer._prepare(ensemble.clients, ensemble.resolved.algorithm)
    trainer._try_each()
    assert len(tried) == 2


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_autocast_keeps_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    with computing_in("bf16", torch.device("cuda")):
        assert not torch.is_autocast_cache_enabled()
    assert torch.is_autocast_cache_enabled()


@pytest.mark.gpu
@pytest.mark.parametrize("trainer", [PlainTrainer, lambda: CudaTrainer("bf16")], ids=["plain", "cuda"])
@pytest.mark.parametrize("backbone", ["cnn", "tests.models.lab:Small"])
def test_in_bfloat16_edges_change_nothing(tiny: Experiment, trainer: Any, backbone: str) -> None:
    """Autocast keeps weights that it cast, unless told otherwise: those of the first step of a window."""
    one = tiny.with_values(model={"backbone": backbone}, algorithm={"name": "separate"})
    found, often = [], range(20)
    for edges in (often[:0], often):
        engine = LocalEngine(assemble(one, "cuda"), trainer(), "bf16")
        windowed = [engine.train(window, lambda _: None).values for window in windows(0, 20, edges)]
        found.append(torch.cat(windowed, 1))
    assert torch.equal(*found) if trainer is PlainTrainer else apart(*found) < 1e-2


@dataclass(frozen=True, config=CHECKED)
class ReadsStep(Separate):
    """Depends on the number of the step, which a captured step does not know."""

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        return {name: value * (1.0 + step / 100) for name, value in super().losses(client, batch, step).items()}


@dataclass(frozen=True, config=CHECKED)
class ReadsPlan(Separate):
    def plan(self, client: Client, start: int, stop: int) -> WindowPlan:
        return WindowPlan(arrays={"factor": torch.arange(start, stop).numpy() / 10})

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        factor = float(batch.plan.arrays["factor"])
        return {name: value * factor for name, value in super().losses(client, batch, step).items()}


@pytest.mark.gpu
@pytest.mark.parametrize(("algorithm", "what"), [(ReadsStep(), "step"), (ReadsPlan(), "plan")])
def test_what_cannot_be_captured_is_trained_plainly_and_said_once(
    tiny: Experiment, algorithm: Separate, what: str
) -> None:
    made = assemble(tiny.with_values(algorithm={"name": "separate"}), "cuda", torch.float64)
    expected, _ = run(with_algorithm(made, algorithm), PlainTrainer(), "cuda", torch.float64)
    made = assemble(tiny.with_values(algorithm={"name": "separate"}), "cuda", torch.float64)
    trainer = CudaTrainer("float32")
    losses, _ = run(with_algorithm(made, algorithm), trainer, "cuda", torch.float64)
    assert apart(expected, losses) < 1e-9
    assert len(trainer.notes) == 1
    assert what in trainer.notes[0]


@pytest.mark.gpu
def test_too_little_memory_says_what_to_lower(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    total = torch.cuda.mem_get_info()[1]
    ensemble = assemble(tiny, "cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1_000, total))
    with pytest.raises(TrainingError, match=r"out of GPU memory: .* are free; lower training.batch_size"):
        run(ensemble, CudaTrainer("float32"), "cuda", torch.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("backbone", ["fedmd0", "fedmd5", "cnn", "resnet8"])
def test_gradients_are_those_of_a_cpu(backbone: str, channels_last: bool, small_npz: Path) -> None:
    """Gradients of pooling equal those of a CPU, which is not so for all of PyTorch's versions of pooling on a GPU."""
    from manyheads.config.experiment import ModelConfig
    from manyheads.models.client_model import make_model
    from manyheads.seeds import generator

    order = torch.channels_last if channels_last else torch.contiguous_format
    images = torch.rand(4, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def gradients(device: str) -> Iterator[Tensor]:
        config = ModelConfig(backbone=backbone, width=8)
        rng = generator(0, "weights")
        model = make_model(config, image_shape=(32, 32, 3), heads=2, classes=5, rng=rng).double().to(device)
        logits_BHC, _ = model(images.to(device).contiguous(memory_format=order))
        (logits_BHC * torch.arange(5, device=device)).square().sum().backward()
        return (parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None)

    for here, there in zip(gradients("cpu"), gradients("cuda"), strict=True):
        assert torch.allclose(here, there, rtol=1e-6, atol=1e-8)

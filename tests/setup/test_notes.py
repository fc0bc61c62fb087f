"""Notes before training."""

import pytest

from manyheads import Experiment
from manyheads.evaluation.accuracy import evaluation_of, score
from manyheads.setup.build import build_ensemble
from manyheads.setup.device import device_named
from manyheads.setup.notes import notes_of
from manyheads.setup.resolve import resolve


@pytest.mark.parametrize("fraction", [0.01, 0.02, 0.03])
def test_a_validation_part_that_is_too_small_to_choose_on_is_told(tiny: Experiment, fraction: float) -> None:
    resolved = resolve(tiny.with_values(data={"validation_fraction": fraction}))
    ensemble = build_ensemble(resolved, device_named("cpu"))
    validation = ensemble.parts[0]
    scores = [score(client.model, validation) for client in ensemble.clients]
    samples = evaluation_of(ensemble.clients, "validation", scores).private_samples
    few = [own for own in samples if own < 10]
    told = [note for note in notes_of(resolved) if "choose their heads" in note]
    if not few:
        assert told == []
        return
    least = samples.index(min(samples))
    assert told == [
        f"{len(few)} of 3 clients choose their heads on fewer than 10 validation samples of their own task "
        f"(client-{least}: {int(min(samples))}); raise data.validation_fraction = {fraction:g}"
    ]


@pytest.mark.parametrize("fraction", [0.0, 0.1])
def test_none_or_enough_validation_is_no_reason_for_a_note(tiny: Experiment, fraction: float) -> None:
    notes = notes_of(resolve(tiny.with_values(data={"validation_fraction": fraction})))
    assert not [note for note in notes if "choose their heads" in note]

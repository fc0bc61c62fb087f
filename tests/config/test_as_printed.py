"""Experiments as the paper prints them keep the hashes that they had before `balance` and the new defaults."""

import dataclasses
from typing import Any

import pytest

from manyheads import Experiment
from manyheads.config.as_printed import ADDED, KNOBS, filled_in
from manyheads.config.knobs import KNOBS as KINDS
from manyheads.studies.paper.keys import cell_key

BEFORE: dict[str, tuple[dict[str, Any], str, str, str]] = {  # computed by commit cd5c480
    # values, their fingerprint, the same without a seed, the key of a cell
    "mhd-printed": (
        {
            "algorithm": {
                "name": "mhd",
                "nu_emb": 1.0,
                "nu_aux": 3.0,
                "select": "most_confident",
                "pool_size": 8,
                "pool_every": 100,
                "confidence": "max_probability",
                "ramp": {"hold": 0.1, "rise": 0.3},
                "average_every": 50,
            }
        },
        "6a89eb3cab1286fd39677507226f1e95b793e7a4d315b6a40b8f9a4471d9c549",
        "6a89eb3cab1286fd39677507226f1e95b793e7a4d315b6a40b8f9a4471d9c549",
        "7a06cda1bb819233",
    ),
    "mhd-other": (
        {
            "seed": 3,
            "algorithm": {
                "name": "mhd",
                "nu_aux": 1.0,
                "nu_emb": 0.0,
                "pool_size": 4,
                "pool_every": 50,
                "select": "random",
                "confidence": "density",
                "ramp": {"hold": 0.0, "rise": 0.0},
                "average_every": 7,
            },
            "training": {"steps": 500, "warmup_steps": 20},
            "evaluate": {"every": 250},
        },
        "2b1051cf0f0a5ee8507b1ab05daa057bdf4bd66304273cc9853f7a2209f6f98f",
        "ab88aa77ab2a2ff2e0977ce387583fe433431680e5cda2a4e3514c5e5458d502",
        "8e5773bb4cf80439",
    ),
    "averaging": (
        {"algorithm": {"name": "averaging", "average_every": 100}, "training": {"warmup_steps": 200}},
        "7099fee2fe382a888e00d479e498088a8de761edb17da7e8cb7450d28dd4532b",
        "7099fee2fe382a888e00d479e498088a8de761edb17da7e8cb7450d28dd4532b",
        "7b7efaa96a0c6f36",
    ),
    "averaging-other": (
        {"algorithm": {"name": "averaging", "average_every": 5}},
        "2c4d971eeb7e05c7fcb08a00cdf2937345d4cf2f93ff15b8b233372d8770577a",
        "2c4d971eeb7e05c7fcb08a00cdf2937345d4cf2f93ff15b8b233372d8770577a",
        "2c4d971eeb7e05c7",
    ),
    "fedmd": (
        {
            "algorithm": {"name": "fedmd", "first_private_steps": 100, "digest_steps": 50, "revisit_steps": 50},
            "training": {"warmup_steps": 200},
        },
        "90a834f302705d9e4600e9e13eb0075d544bcd18a37dddea610710da4c62184f",
        "90a834f302705d9e4600e9e13eb0075d544bcd18a37dddea610710da4c62184f",
        "b67ec1c136c3fd3f",
    ),
    "separate": (
        {
            "algorithm": {"name": "separate"},
            "training": {"warmup_steps": 200, "steps": 1000},
            "evaluate": {"every": 1000},
        },
        "d347e75591fd1f685c125e0e136861d5a077f0d43d7929e96f8786621ac1133b",
        "d347e75591fd1f685c125e0e136861d5a077f0d43d7929e96f8786621ac1133b",
        "d347e75591fd1f68",
    ),
}
PRINTED_TRAINING = {"warmup_steps": 200, "balance": 0.0}
PRINTED_MHD = {
    "pull": "sum",
    "pull_ramp": {"hold": 0.0, "rise": 0.0},
    "own_labels": 0.0,
    "ask": "drawn",
    "sharpness": 1.0,
    "remember": 0.0,
    "fit_every": 1,
}


def printed(values: dict[str, Any]) -> Experiment:
    """Return the experiment with what added keys, and defaults that changed, meant then."""
    then = PRINTED_MHD if values["algorithm"]["name"] == "mhd" else {}
    algorithm = then | values["algorithm"]
    training = PRINTED_TRAINING | values.get("training", {})
    every = {"every": 1_000} | values.get("evaluate", {})
    made = {"clients": 3, "data": {"source": "digits"}, **values}
    return Experiment(**made | {"algorithm": algorithm, "training": training, "evaluate": every})


@pytest.mark.parametrize("name", BEFORE)
def test_hashes_are_those_of_before(name: str) -> None:
    values, fingerprint, without_seed, key = BEFORE[name]
    made = printed(values)
    assert made.fingerprint() == fingerprint
    assert made.fingerprint(seed=False) == without_seed
    assert cell_key(made) == key


@pytest.mark.parametrize("name", BEFORE)
def test_a_new_default_is_hashed_like_any_choice(name: str) -> None:
    made = printed(BEFORE[name][0])
    changes: list[dict[str, Any]] = [{"training": {"balance": 1.0}}]
    if made.algorithm.name == "mhd":
        changes += [
            {"algorithm": {key: value}}
            for key, value in (
                ("pull", 0.3),
                ("own_labels", 1.0),
                ("ask", "surest"),
                ("sharpness", 8.0),
                ("remember", 0.9),
                ("fit_every", 20),
            )
        ]
    others = [made.with_values(**change) for change in changes]
    assert len({made.fingerprint(), *(other.fingerprint() for other in others)}) == 1 + len(others)
    assert len({cell_key(made), *map(cell_key, others)}) == 1 + len(others)


@pytest.mark.parametrize("name", KINDS)
def test_what_a_file_lacks_is_what_it_meant(name: str) -> None:
    meant = KNOBS.get(name, {})
    filled = filled_in({"clients": 2, "algorithm": {"name": name}})
    assert filled["training"] == {"balance": 0.0}
    assert filled["algorithm"] == {"name": name} | {key: meant[key] for key in ADDED["algorithm"] if key in meant}
    own = {
        "training": {"balance": 2.0},
        "algorithm": {
            "name": name,
            "pull": 0.5,
            "pull_ramp": {"rise": 0.1},
            "own_labels": 0.2,
            "ask": "surest",
            "sharpness": 3.0,
            "remember": 0.1,
            "fit_every": 7,
        },
    }
    assert filled_in(own) == own
    assert filled_in(filled) == filled


def test_keys_that_were_added_are_knobs() -> None:
    for name, meant in KNOBS.items():
        assert meant.keys() <= {field.name for field in dataclasses.fields(KINDS[name])}
    assert set(ADDED["algorithm"]) <= KNOBS["mhd"].keys()


def test_a_file_from_before_the_ramp_of_the_pull_has_none() -> None:
    """A run of the first version with `pull` trains on without a ramp, whatever the default is today."""
    before = {"pull": 0.3, "sharpness": 8.0, "remember": 0.9, "fit_every": 20}
    filled = filled_in({"clients": 2, "algorithm": {"name": "mhd", **before}})["algorithm"]
    assert filled == {
        "name": "mhd",
        "pull_ramp": {"hold": 0.0, "rise": 0.0},
        "own_labels": 0.0,
        "ask": "drawn",
        **before,
    }

"""Is it worth joining? Tables and sentences from summaries that are made up."""

import re
from collections.abc import Sequence
from statistics import mean
from typing import Any

import pytest
from rich.table import Table

from manyheads.report.advice import RunSettings, advice_text
from manyheads.report.beside import gain_table, recommended_accuracy, ways_table, worth_text
from manyheads.report.sentences import no_gain_text
from manyheads.runs.summary import Summary

LONG = RunSettings("mhd", steps=600, public_samples=400, passes=48.0, confidence="max_probability")
SHORT = RunSettings("mhd", steps=20, public_samples=400, passes=1.6, confidence="max_probability")
MAIN = {"private": 0, "shared": 0, "prior": False}


def summary(
    private: Sequence[float], shared: Sequence[float], *, algorithm: str = "mhd", seed: int = 0, **changes: Any
) -> Summary:
    """Return the summary of clients with two heads, of which the second is recommended for the shared task."""
    clients = [
        {
            "name": f"client-{number}",
            "samples": 100 + number,
            "primary_labels": [0],
            "private_accuracy": [own, 0.1],
            "shared_accuracy": [0.2, others],
            "deploy": {"private": 0, "shared": 1, "prior": False},
        }
        for number, (own, others) in enumerate(zip(private, shared, strict=True))
    ]
    return Summary.model_validate(
        {
            "algorithm": algorithm,
            "seed": seed,
            "version": "0",
            "data": "made",
            "image_shape": [1, 1, 1],
            "steps": 600,
            "seconds": 1.0,
            "classes": ["cat", "dog"],
            "private_accuracy": [mean(private), 0.1],
            "shared_accuracy": [0.2, mean(shared)],
            "deploy": {"private": 0, "shared": 1, "prior": False},
            "bytes_received": [1_000] * len(clients),
            "clients": clients,
            **changes,
        }
    )


def with_deploy(made: Summary, deploy: dict[str, Any] | None, **changes: Any) -> Summary:
    values = made.model_dump()
    values |= {"deploy": deploy, "clients": [own | {"deploy": deploy} | changes for own in values["clients"]]}
    return Summary.model_validate(values)


def alone(private: Sequence[float], shared: Sequence[float], **changes: Any) -> Summary:
    return summary(private, shared, algorithm="separate", **changes)


def rows(table: Table) -> list[list[str]]:
    return [list(row) for row in zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)]


def test_each_client_and_the_mean_have_a_row() -> None:
    table = gain_table([alone([0.9, 0.8], [0.3, 0.4])], [summary([0.95, 0.77], [0.7, 0.6])])
    assert rows(table) == [
        ["client-0", "100", "90.0", "95.0", "+5.0", "30.0", "70.0", "+40.0"],
        ["client-1", "101", "80.0", "77.0", "-3.0", "40.0", "60.0", "+20.0"],
        ["mean of 2", "100", "85.0", "86.0", "+1.0", "35.0", "65.0", "+30.0"],
    ]
    assert "heads that validation data recommend" in str(table.caption)
    assert "alone (separate) and together (mhd)" in str(table.title)


def test_with_several_seeds_means_and_spread_are_over_seeds() -> None:
    before = [alone([0.9, 0.8], [0.3, 0.3]), alone([0.9, 0.8], [0.3, 0.3], seed=1)]
    after = [summary([0.92, 0.8], [0.5, 0.7]), summary([0.94, 0.8], [0.5, 0.9], seed=1)]
    table = gain_table(before, after)
    own, other, means = rows(table)
    assert own[2:5] == ["90.0 ± 0.0", "93.0 ± 1.4", "+3.0 ± 1.4"]
    assert other[5:] == ["30.0 ± 0.0", "80.0 ± 14.1", "+50.0 ± 14.1"]
    assert means[5:] == ["30.0 ± 0.0", "65.0 ± 7.1", "+35.0 ± 7.1"]
    assert "over 2 seeds" in str(table.title)


def test_of_many_clients_the_spread_and_the_extremes_are_shown() -> None:
    private = [0.5 + number / 100 for number in range(30)]
    table = gain_table([alone([0.6] * 30, [0.2] * 30)], [summary(private, [0.5] * 30)])
    spread, most, least, means = rows(table)
    assert spread == ["std. deviation", "9", "0.0", "8.8", "8.8", "0.0", "0.0", "0.0"]
    assert (most[0], most[4]) == ("gains most: client-29", "+19.0")
    assert (least[0], least[4]) == ("gains least: client-0", "-10.0")
    assert (means[0], means[4]) == ("mean of 30", "+4.5")


def test_accuracies_are_those_of_the_heads_that_a_client_would_use() -> None:
    made = summary([0.9], [0.6])
    balanced = with_deploy(made, {"private": 1, "shared": 0, "prior": True}, private_with_prior=[0.95, 0.97])
    assert recommended_accuracy(balanced.clients[0], "private") == 0.97
    assert recommended_accuracy(balanced.clients[0], "shared") == 0.2
    plain = with_deploy(made, {"private": 0, "shared": 1, "prior": False}, private_with_prior=[0.95, 0.97])
    assert recommended_accuracy(plain.clients[0], "private") == 0.9
    without = with_deploy(made, None, private_with_prior=[0.95, 0.97])
    assert [recommended_accuracy(without.clients[0], task) for task in ("private", "shared")] == [0.95, 0.6]
    assert "There is no validation part" in str(gain_table([without], [without]).caption)


def test_ways_that_are_missing_say_why() -> None:
    runs = {"mhd": [summary([0.9], [0.6])], "separate": [alone([0.8], [0.3], bytes_received=[0])]}
    assert rows(ways_table(runs, {"averaging": "different models"})) == [
        ["mhd", "90.0", "60.0", "1.0 KB", ""],
        ["separate", "80.0", "30.0", "0 B", ""],
        ["averaging", "", "", "", "different models"],
    ]
    assert len(ways_table(runs, {}).columns) == 4


def test_one_model_for_all_has_no_private_task() -> None:
    runs = {"mhd": [summary([0.9, 0.8], [0.6, 0.6])], "supervised": [alone([0.8], [0.9])]}
    table = ways_table(runs, {})
    assert rows(table)[1][:3] == ["supervised", "", "90.0"]
    assert "no task of its own" in str(table.caption)


def test_who_gains_and_who_loses() -> None:
    before = [alone([0.9, 0.8, 0.7], [0.3, 0.3, 0.7])]
    said = worth_text(before, [summary([0.93, 0.785, 0.7], [0.6, 0.6, 0.6])], LONG)
    assert said == (
        "Worth joining with these settings: on average a client's accuracy changes by +16.7 points (43.3 -> 60.0 %) on "
        "everybody's task, and by +0.5 points (80.0 -> 80.5 %) on its own. Of 3 clients, 2 gain on everybody's task; "
        "on their own task 1 gains and 1 loses more than a point (client-1)."
    )
    numbers = rows(gain_table(before, [summary([0.93, 0.785, 0.7], [0.6, 0.6, 0.6])]))[-1]
    assert {"+16.7", "+0.5", "43.3", "60.0", "80.0", "80.5"} <= set(numbers)


@pytest.mark.parametrize(
    ("private", "shared", "verdict"),
    [
        (0.79, 0.5, "Worth"),  # a point exactly, as the table shows it
        (0.789, 0.5, "Not worth"),
        (0.8, 0.3004, "Not worth"),  # +0.0 in the table
        (0.8, 0.301, "Worth"),
        (0.9, 0.2, "Not worth"),
    ],
)
def test_the_verdict(private: float, shared: float, verdict: str) -> None:
    said = worth_text([alone([0.8], [0.3])], [summary([private], [shared])], LONG)
    assert said.startswith(f"{verdict} joining with these settings: ")
    assert ("Change first: " in said) == (verdict == "Not worth")


@pytest.mark.parametrize(
    ("private", "shared", "verdict"),
    [
        ((0.76, 0.80), (0.6, 0.6), "Worth"),  # -2 on average, but two standard errors are 4 points
        ((0.779, 0.781), (0.6, 0.6), "Not worth"),  # -2 on average, two standard errors are 0.2
        ((0.8, 0.8), (0.2, 0.5), "May be worth"),  # +5 on average, two standard errors are 30
    ],
)
def test_what_seeds_do_not_agree_on(private: tuple[float, float], shared: tuple[float, float], verdict: str) -> None:
    before = [alone([0.8], [0.3]), alone([0.8], [0.3], seed=1)]
    after = [summary([private[0]], [shared[0]]), summary([private[1]], [shared[1]], seed=1)]
    said = worth_text(before, after, LONG)
    assert said.startswith(f"{verdict} joining")
    assert ("within two standard errors" in said) == (private == (0.76, 0.80) or verdict == "May be worth")


SET = "algorithm.confidence=density"


def test_nothing_is_advised_that_is_set() -> None:
    assert "training.steps = 20 is short: 1.6 passes over the 400 public samples" in advice_text(SHORT)
    assert advice_text(LONG).startswith(SET)
    density = RunSettings("mhd", steps=600, public_samples=400, passes=48.0, confidence="density")
    groups = RunSettings("mhd", 600, 400, 48.0, "max_probability", groups=True)
    fedmd = RunSettings("fedmd", 600, 400, 48.0)
    for settings in (density, groups, fedmd):
        assert advice_text(settings).startswith("more public samples (now 400)")
    assert "algorithm.average_every = 10" in advice_text(RunSettings("averaging", 600, average_every=10))
    assert advice_text(RunSettings("averaging", 600, average_every=1)) == "more steps (training.steps = 600)"


def judged(shared: Sequence[float]) -> dict[str, Any]:
    return {"private_accuracy": [0.5] * len(shared), "shared_accuracy": list(shared)}


def test_no_gain_is_said_of_the_part_that_the_table_shows() -> None:
    one = summary([0.9], [0.15], validation=judged([0.1, 0.9]))  # test: main 20, recommended 15
    said = str(no_gain_text([one], LONG))
    assert re.search(r"shared accuracy of aux 1, recommended .* is 15.0 %, that of the main head, .* 20.0 %", said)
    assert SET in said
    assert SET not in str(no_gain_text([one], RunSettings("mhd", 600, 400, 48.0, "density")))
    assert no_gain_text([summary([0.9], [0.25], validation=judged([0.9, 0.95]))], LONG) is None


def test_no_gain_where_the_main_head_is_recommended() -> None:
    one = with_deploy(summary([0.9], [0.15], validation=judged([0.6, 0.5])), MAIN)
    assert "recommend the main head, which nobody teaches" in str(no_gain_text([one], SHORT))
    assert "(shared accuracy: main 20.0 %, aux 1 15.0 %)" in str(no_gain_text([one], SHORT))


def test_no_gain_without_validation_is_said_of_the_last_head() -> None:
    assert "of aux 1, the last one, is 15.0 %" in str(no_gain_text([with_deploy(summary([0.9], [0.15]), None)], LONG))


def test_no_gain_over_seeds_is_said_of_means() -> None:
    seeds = [
        summary([0.9], [shared], validation=judged([0.1, 0.9]), seed=seed) for seed, shared in ((0, 0.1), (1, 0.2))
    ]
    assert "is 15.0 %" in str(no_gain_text(seeds, LONG))
    better = summary([0.9], [0.5], validation=judged([0.1, 0.9]), seed=1)
    assert no_gain_text([seeds[0], better], LONG) is None

"""For many clients, tables and lines show the mean, the spread and the extremes."""

from typing import Any

import numpy as np
import pytest

from manyheads.report.sentences import collapse_text, models_text
from manyheads.report.split_figure import split_figure
from manyheads.report.split_table import split_table
from manyheads.report.tables import hop_table, run_table
from manyheads.report.taught_tables import taught_by_class_table
from manyheads.runs.summary import Summary
from tests.report.test_report import rows, summary


def with_clients(number: int, **changes: Any) -> Summary:
    """Return a summary: client i has i + 1 samples; with i the main head's accuracy falls, the last head's rises."""
    clients: list[dict[str, Any]] = [
        {
            "name": f"client-{i}",
            "samples": i + 1,
            "primary_labels": [i % 3],
            "private_accuracy": [1.0 - i / 100, 0.5, 0.4],
            "shared_accuracy": [0.4, 0.5, i / 100],
        }
        for i in range(number)
    ]
    means = {
        task: np.mean([client[task] for client in clients], axis=0).tolist()
        for task in ("private_accuracy", "shared_accuracy")
    }
    received = {"bytes_received": [1_000 * (i + 1) for i in range(number)]}
    return summary(**{"clients": clients, "taught": None} | means | received | changes)


def test_of_many_clients_the_mean_the_spread_and_the_extremes_are_shown() -> None:
    assert len(rows(run_table(with_clients(20)))) == 42
    table = run_table(with_clients(30))
    shown = rows(table)
    # Samples are 1 to 30; the private accuracy of the main head falls, the shared accuracy of the last head rises.
    assert [row[:4] for row in shown] == [
        ["private", "mean of 30", "16", ""],
        ["", "std. deviation", "9", ""],
        ["", "best: client-0", "1", "cat"],
        ["", "worst: client-29", "30", "owl"],
        ["shared", "mean of 30", "16", ""],
        ["", "std. deviation", "9", ""],
        ["", "best: client-29", "30", "owl"],
        ["", "worst: client-0", "1", "cat"],
    ]
    assert [row[4:] for row in shown[:4]] == [
        ["85.5", "50.0", "40.0", "15.5 KB"],
        ["8.8", "0.0", "0.0", ""],
        ["100.0", "50.0", "40.0", "1.0 KB"],
        ["71.0", "50.0", "40.0", "30.0 KB"],
    ]
    assert [row[6] for row in shown[4:]] == ["14.5", "8.8", "29.0", "0.0"]
    assert str(table.caption) == (
        "Best and worst: by private accuracy of main, by shared accuracy of aux 2; summary.json has all clients."
    )


def test_of_many_hops_the_first_and_the_last_are_shown() -> None:
    by_hop = {str(away): [away / 1000] * 3 for away in range(100)} | {"none": [0.5] * 3}
    shown = rows(hop_table(summary(by_hop=by_hop)))
    assert [row[0] for row in shown] == ["0 (own)", *map(str, range(1, 18)), "...", "99", "none"]
    assert shown[-2] == ["99", "9.9", "9.9", "9.9"]


def test_of_many_teachers_the_extremes_are_shown() -> None:
    classes = [str(label) for label in range(21)]
    chosen = [[0] * 20 + [10 * i] for i in range(25)]  # client i taught 10 i samples, all of the last class
    right = [[0] * 20 + [i] for i in range(25)]
    taught = {
        "step": 20,
        "own": [0, 0],
        "own_right": [0, 0],
        "others": [[0] * 25] * 2,
        "others_right": [[0] * 25] * 2,
        "chosen_by_class": chosen,
        "right_by_class": right,
    }
    shown = rows(taught_by_class_table(with_clients(25, classes=classes, taught=taught)))
    assert [row[:3] for row in shown] == [
        ["mean of 25", "4.0", "10.0"],
        ["std. deviation", "2.5", ""],
        ["most: client-24", "8.0", "10.0"],
        ["least: client-0", "0.0", ""],
    ]


@pytest.mark.parametrize("classes", [3, 40])
def test_of_many_owners_the_extremes_are_shown(classes: int) -> None:
    counts = [[i + 1, 2, *[0] * (classes - 2)] for i in range(25)]
    names = [f"client-{i}" for i in range(25)]
    table = split_table(counts, [[0]] * 25, [f"class {label}" for label in range(classes)], names)
    shown = rows(table)
    assert [row[:2] for row in shown] == [
        ["mean of 25", "15"],
        ["std. deviation", "7"],
        ["most: client-24", "27"],
        ["fewest: client-0", "3"],
    ]
    mean, largest = (
        (["13", "2", "0"], ["25*", "2", "0"]) if classes == 3 else (["2", "1", "13"], ["2", "1", "25 (93 %)"])
    )
    assert (shown[0][2:], shown[2][2:]) == (mean, largest)
    assert len(rows(split_table(counts[:20], [[0]] * 20, ["x"] * classes, names[:20]))) == 20


def test_of_many_clients_a_line_says_who_has_which_model() -> None:
    names = [f"client-{i}" for i in range(100)]
    assert models_text(names[:2], ["cnn", "cnn"]) == ["client-0: cnn", "client-1: cnn"]
    mixed = models_text(names, ["cnn" if i % 2 else "resnet8" for i in range(100)])
    assert mixed == [
        "client-0, client-2, client-4 and 47 more: resnet8",
        "client-1, client-3, client-5 and 47 more: cnn",
    ]
    assert len(models_text(names, names)) == 21


def test_a_collapse_of_many_clients_is_one_short_line() -> None:
    (line,) = collapse_text([[client, 1, 0] for client in range(1000)], ["cat", "dog"])
    assert "of client 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more has collapsed" in line


def test_names_of_many_clients_do_not_cover_each_other() -> None:
    (axes, *_) = split_figure([[1, 2]] * 40, [[]] * 40, ["cat", "dog"], [f"ward {i}" for i in range(40)]).axes
    assert axes.get_yticklabels()[39].get_text() == "ward 39"
    (axes, *_) = split_figure([[1, 2]] * 100, [[]] * 100, ["cat", "dog"], [f"ward {i}" for i in range(100)]).axes
    assert axes.get_ylabel() == "number of the client"
    assert len(axes.get_yticks()) < 20

"""A claim is judged by what was stored, seed by seed."""

from pathlib import Path
from statistics import median, stdev

import pytest

from manyheads.studies.paper.claims import Check, Claim, above, at, highest, near, rising
from manyheads.studies.paper.measures import LAST, PRIVATE, SHARED, TableResults
from manyheads.studies.paper.names import REPRODUCTIONS
from manyheads.studies.paper.results import read_results
from manyheads.studies.paper.scales import SCALES, Scale
from tests.studies.paper import results_with

RESULTS = Path(__file__).parents[3] / "experiments" / "mhd" / "results"


def verdict(claim: Claim, found: TableResults) -> str | None:
    judged = claim.verdict(found)
    return None if judged is None else judged.answer


def test_it_holds_where_every_seed_says_so_and_not_where_none_does() -> None:
    found = results_with({"a": [0.5, 0.6], "b": [0.4, 0.5], "c": [0.55, 0.55]})
    a, b, c = (at(cell, LAST) for cell in "abc")
    assert verdict(Claim("", [above(a, b)]), found) == "yes"
    assert verdict(Claim("", [above(b, a)]), found) == "no"
    assert verdict(Claim("", [above(a, c)]), found) == "unclear"
    assert verdict(Claim("", [above(a, b, by=9.9)]), found) == "yes"
    assert verdict(Claim("", [above(a, b, by=10.1)]), found) == "no"


def test_one_check_that_fails_is_enough() -> None:
    found = results_with({"a": [0.5], "b": [0.4], "c": [0.6]})
    assert verdict(Claim("", rising(at("b", LAST), at("a", LAST), at("c", LAST))), found) == "yes"
    assert verdict(Claim("", rising(at("a", LAST), at("b", LAST), at("c", LAST))), found) == "no"
    assert verdict(Claim("", [near(at("a", LAST), at("b", LAST), within=10.1)]), found) == "yes"
    assert verdict(Claim("", [near(at("b", LAST), at("c", LAST), within=10.1)]), found) == "no"


def test_a_cell_that_was_not_run_leaves_it_open() -> None:
    assert verdict(Claim("", [above(at("a", LAST), at("missing", LAST))]), results_with({"a": [0.5]})) is None


def test_only_seeds_that_both_have_are_compared() -> None:
    found = results_with({"a": [0.5, 0.1], "b": [0.4]})
    assert (at("a", LAST) - at("b", LAST)).of(found) == pytest.approx({0: 10.0})


def test_ratios_and_the_highest_of_several() -> None:
    found = results_with({"low": [0.2], "mid": [0.5], "high": [0.6]})
    low, mid, high = (at(cell, LAST) for cell in ("low", "mid", "high"))
    share = (mid - low).percent_of(high - low)
    assert share.of(found) == pytest.approx({0: 75.0})
    assert verdict(Claim("", [Check(share, above=70.0, below=80.0)]), found) == "yes"
    assert verdict(Claim("", [Check((mid - low).percent_of(low - low), above=0.0)]), found) == "no"
    assert highest("", low, high, mid).of(found) == pytest.approx({0: 60.0})


def test_each_part_is_judged_by_the_seeds_that_it_has() -> None:
    found = results_with({"a": [0.5, 0.7], "b": [0.4, 0.4], "c": [0.1], "d": [0.45, 0.35]})
    a, b, c, d = (at(cell, LAST) for cell in "abcd")
    judged = Claim("", [above(a, b), above(c, b, by=-40.0)]).verdict(found)
    assert judged is not None
    assert judged.answer == "yes"
    assert judged.parts == (
        "shared, last head: a minus b: +20.0 (2/2)",
        "shared, last head: c minus b: -30.0 (1/1; must be above -40)",
    )
    assert judged.seeds == 1
    assert Claim("", []).verdict(found) is None
    assert verdict(Claim("", [above(d, b), above(b, c)]), found) == "unclear"  # not "yes", for seed 0 alone


def test_one_seed_close_to_a_bound_decides_nothing() -> None:
    found = results_with({"a": [0.5], "b": [0.498], "c": [0.4, 0.41], "d": [0.401, 0.411]}, doubt=0.3)
    a, b, c, d = (at(cell, LAST) for cell in "abcd")
    for close in (above(a, b), above(b, a), near(a, b, within=0.4), above(a, c, by=9.9)):
        assert verdict(Claim("", [close]), found) == "unclear"
    judged = Claim("", [above(b, a)]).verdict(found)
    assert judged is not None
    assert judged.parts == ("shared, last head: b minus a: -0.2 (0/1, too close)",)
    assert verdict(Claim("", [above(a, b), above(c, a)]), found) == "no"  # another part fails
    assert verdict(Claim("", [above(a, c), near(a, b, within=1.0)]), found) == "yes"
    assert verdict(Claim("", [above(d, c)]), found) == "yes"  # two seeds say the same


@pytest.mark.parametrize("scale", [scale for scale in SCALES.values() if scale.doubt])
def test_how_close_is_too_close_was_measured(scale: Scale) -> None:
    stored = read_results(RESULTS, scale.name)
    deviations = []
    for one in REPRODUCTIONS.values():
        found = one.results(scale, stored)
        by_part = [check.quantity.of(found) for claim in one.claims_at(scale) for check in claim.checks]
        deviations += [stdev(by_seed.values()) for by_seed in by_part if len(by_seed) == 3]
    assert median(deviations) == pytest.approx(scale.doubt, abs=0.1)


def test_parts_say_what_they_compare_and_where_it_must_lie() -> None:
    found = results_with({"a": [0.5], "b": [0.4], "c": [0.4049]}, heads=2)
    a, b, c = (at(cell, LAST) for cell in "abc")

    def words(check: Check) -> str:
        judged = Claim("", [check]).verdict(found)
        assert judged is not None
        return judged.parts[0]

    assert words(above(a, at("a", SHARED))) == "a, shared: last head minus main head: +1.0 (1/1)"
    assert words(Check(a, above=45.0, below=55.0)) == "a: shared, last head: 50.0 (1/1; must be above 45 and below 55)"
    assert (
        words(near(c, b, within=0.5)) == "shared, last head: c minus b: +0.49 (1/1; must be above -0.5 and below 0.5)"
    )
    assert words(above(a - b, at("a", SHARED) - at("b", SHARED))).startswith(
        "(shared, last head: a minus b) minus (shared, main head: a minus b): "
    )
    assert words(Check((a - b).percent_of(a), below=30.0)) == (
        "(shared, last head: a minus b) / (a: shared, last head): 20.0 % (1/1; must be below 30)"
    )


def test_measures_are_percent_of_the_head_they_name() -> None:
    found = results_with({"a": [0.5]}, heads=3)
    result = found.cells["a"][0]
    assert LAST.of(result) == pytest.approx(50.0)
    assert SHARED.of(result) == pytest.approx(48.0)  # each head of these is a point above the one before
    assert PRIVATE.of(result) == pytest.approx(90.0)


def test_a_part_that_holds_for_some_seeds_leaves_it_unclear() -> None:
    found = results_with({"a": [0.5, 0.3], "b": [0.4, 0.4], "c": [0.45, 0.45]})
    both = Claim("", [above(at("a", LAST), at("b", LAST)), above(at("b", LAST), at("a", LAST))])
    assert verdict(both, found) == "unclear"
    assert (
        verdict(Claim("", [above(at("a", LAST), at("b", LAST)), above(at("c", LAST), at("b", LAST))]), found)
        == "unclear"
    )

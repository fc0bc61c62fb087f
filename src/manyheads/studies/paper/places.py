"""The places in the paper that our tables reproduce: "Table 5", "Figs. 3-5", "Section 4.2.2"."""

import re
from collections.abc import Iterator, Sequence, Set

from manyheads.errors import ConfigurationError
from manyheads.studies.paper.names import REPRODUCTIONS
from manyheads.studies.paper.reproduction import Reproduction

# "Figure 4, Tables 7 and 8" are two of these, "Figs. 3-5", "4.2.2" and "Appendix B.1" one each.
PLACE = re.compile(
    r"(?P<kind>(?:fig|tab|sec)[a-z.]*|§)\s*(?P<numbers>\d[\d.]*(?:\s*(?:,|and|-)\s*\d[\d.]*)*)"
    r"|(?<![\w.])(?P<section>\d+(?:\.\d+)+)(?![\w.])"
    r"|\bapp(?:endix|\.)?\s+(?P<appendix>[a-z](?:\.\d+)*)\b",
    re.I,
)


def resolve_names(given: Sequence[str]) -> list[str]:
    """Return our names for words that may be the paper's: "Table 5", "Figs. 3-5" or "Section 4.2.2", quoted or not."""
    text, names = " ".join(given).replace("\N{EN DASH}", "-"), list[str]()
    for words in PLACE.finditer(text):
        sought = _places(words)
        found = [one.name for one in REPRODUCTIONS.values() if any(_within(place, sought) for place in _places_of(one))]
        if not found:
            raise ConfigurationError(f"{words[0]}: is not among what manyheads reproduce --list shows")
        names += found
    return list(dict.fromkeys([*PLACE.sub(" ", text).split(), *names]))


def _places_of(one: Reproduction) -> set[str]:
    return {place for words in PLACE.finditer(one.where) for place in _places(words)}


def _within(place: str, sought: Set[str]) -> bool:
    """Return whether a place is one of those sought, or inside one: Section 4.2.2 is in Section 4.2."""
    return any(place == each or place.startswith(f"{each}.") for each in sought)


def _places(words: re.Match[str]) -> set[str]:
    """Return the places that the words name: "Tables 7 and 8" names two."""
    if words["appendix"]:
        return {f"app {words['appendix'].upper()}"}
    if words["section"]:
        return {f"sec {words['section']}"}
    kind = "sec" if words["kind"] == "§" else words["kind"][:3].lower()
    return {f"{kind} {number}" for number in _numbers(words["numbers"])}


def _numbers(text: str) -> Iterator[str]:
    """Yield single numbers: four from "1, 3-5", three from "4.2.1-4.2.3"."""
    for first, last in re.findall(r"(\d[\d.]*)(?:\s*-\s*(\d[\d.]*))?", text):
        before, number = _split(first)
        end = _split(last)[1] if last else number
        yield from (f"{before}{each}" for each in range(number, end + 1))


def _split(number: str) -> tuple[str, int]:
    """Split a number before its last part: 4.2.2 into "4.2." and 2."""
    *before, last = number.rstrip(".").split(".")
    return "".join(f"{part}." for part in before), int(last)

"""docs/results.md, and the rows of the tables on the screen: made from stored results, never typed."""

from collections.abc import Sequence

from manyheads.report.text import keys_text, mean_and_spread
from manyheads.studies.paper.claims import Verdict
from manyheads.studies.paper.measures import Measure, TableResults
from manyheads.studies.paper.reproduction import Reproduction
from manyheads.studies.paper.results import CellResult, Stored
from manyheads.studies.paper.scales import SCALES, Scale

WORDS = {"yes": "holds", "no": "does not hold", "unclear": "unclear"}
OURS, CHANGED = "Ours", "†"
HEAD = """# The paper, reproduced

`manyheads reproduce --page` makes this page from stored results; nothing is typed by hand. The paper trained ResNet-34
on ImageNet, which nobody has done with manyheads yet. Here the same questions are asked at other scales, so what can be
compared is whether the paper's claims hold, not the numbers. (Its own settings are available; they were tried for a few
steps on a stand-in for ImageNet, [experiments/mhd](../experiments/mhd/README.md).) Only Table 2 ([fedmd](#fedmd)) is
about CIFAR-100 in the paper, too. **All MHD in these tables except [choice](#choice) and [beyond](#beyond)
has a ramp, which the paper does not mention: without a ramp, MHD as printed with four heads fails in the same number of
steps.** For other differences see [deviations.md](deviations.md) and the notes; for speed and memory,
[measurements.md](measurements.md).
"""


READING = """## How to read it
*Private* is test accuracy on the labels of a client, weighted by how often it has them; *shared* is accuracy on all
labels alike. Both are means over clients, and of the main head unless another is named. s is the skew: at s = 0 labels
are spread evenly, at s = 100 a client receives 101 times as many samples of its own labels. An entry is the mean over
seeds, in percent unless the column says otherwise, ± the standard deviation (of a sample) over seeds; the number in
brackets is the paper's. *Deviation across clients* is that of the clients themselves, not of a sample of clients.

A claim consists of parts, mostly differences that should be above 0 or within bounds that the part names. A part is
the mean over the seeds that both sides have (if rows of a table have different numbers of seeds, this differs from the
difference of the means in the table); the brackets say for how many of these seeds it is true. A claim *holds* if all
parts are true for every seed, *does not hold* if a part is true for none, and is *unclear* otherwise. By chance alone,
a single difference has the same sign for three seeds one time in four. One seed says little, and nothing if it is
closer to a bound than a part usually differs from seed to seed (the median of the standard deviations is DOUBTS): such
a part is *too close* and its claim *unclear*, unless another part fails. Even a part that is further away is due to
chance one time in three. On digits, another processor can change a single accuracy by a few points. Where the paper
gives no number ("close", "virtually no effect"), the bound is ours. *Ours* are claims that the paper does not make; the
overview does not count them. † marks claims that were changed after results had been seen; their notes say how. The
notes in `experiments/mhd/` describe each cell and what is known about failures. *Code* is a hash of the files that
decide numbers; different hashes in a table are versions that give the same numbers (`SAME_NUMBERS` in
`studies/paper/code_of_numbers.py` names the tests). *Minutes in total* adds up the time of each run; runs that went on
at the same time took less together.
"""


def results_page(names: Sequence[Reproduction], stored: dict[str, Stored]) -> str:
    """Return the whole page, for all scales that have results."""
    doubts = [f"{scale.doubt:g} points at {scale.name}" for scale in SCALES.values() if scale.doubt]
    sections = [HEAD, _overview(names, stored), READING.replace("DOUBTS", ", ".join(doubts))]
    for reproduction in names:
        parts = [
            part
            for scale in SCALES.values()
            if (part := _section(reproduction, scale, stored.get(scale.name, {}))) is not None
        ]
        if parts:
            note = f"[Note](../experiments/mhd/{reproduction.name}/README.md)."
            sections += [
                f"## {reproduction.name}\n{reproduction.title} ({reproduction.where}). {note}",
                *parts,
            ]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _overview(names: Sequence[Reproduction], stored: dict[str, Stored]) -> str:
    """Return how many of the paper's claims hold, by table and scale."""
    shown = [scale for scale in SCALES.values() if stored.get(scale.name)]
    judged = {one.name: [_verdicts(one, scale, stored[scale.name]) for scale in shown] for one in names}
    lines = [[f"[{one.name}](#{one.name})", one.title, *map(_counts_text, judged[one.name])] for one in names]
    totals = [_counts_text([verdict for each in judged.values() for verdict in each[n]]) for n in range(len(shown))]
    header = ["", "question", *(f"claims, {scale.name}" for scale in shown)]
    about = [
        f"- *{scale.name}*: {scale.about}, {scale.schedule}; unless a table says otherwise."
        f"{_missing_text(names, scale, stored[scale.name])}"
        for scale in shown
    ]
    return "\n".join(about) + f"\n\n{markdown_table(header, [*lines, ['**all**', '', *totals]])}"


def _verdicts(one: Reproduction, scale: Scale, stored: Stored) -> list[Verdict | None]:
    """Judge the paper's own claims; empty if the table makes no sense at this scale."""
    found = one.results(scale, stored)
    return [claim.verdict(found) for claim in one.claims_at(scale) if found.cells and not claim.ours]


def _counts_text(verdicts: Sequence[Verdict | None]) -> str:
    answers = [verdict.answer if verdict else "not run" for verdict in verdicts]
    kinds = ("yes", "unclear", "no", "not run")
    counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in kinds if kind in answers)
    few = sum(verdict.seeds == 1 for verdict in verdicts if verdict)
    return counts + (f" ({few} from one seed)" if few else "")


def _missing_text(names: Sequence[Reproduction], scale: Scale, stored: Stored) -> str:
    """Name the tables that have not been run at a scale, or not completely."""
    every = [(one, one.results(scale, stored)) for one in names]
    none = [one.name for one, found in every if found.cells and not any(found.cells.values())]
    part = [one.name for one, found in every if any(found.cells.values()) and not _complete(one, scale, found)]
    said = [
        f" {word}: {', '.join(listed)}." for word, listed in (("Not run yet", none), ("Not complete", part)) if listed
    ]
    return "".join(said)


def _complete(one: Reproduction, scale: Scale, found: TableResults) -> bool:
    seeds = one.seeds_complete(scale, found)
    return all(len(by_seed) == seeds for by_seed in found.select((), seeds).cells.values())


def _section(reproduction: Reproduction, scale: Scale, stored: Stored) -> str | None:
    found = reproduction.results(scale, stored)
    if not any(found.cells.values()):
        return None
    seeds = reproduction.seeds_complete(scale, found)
    command = f"manyheads reproduce {reproduction.name} --scale {scale.name}{scale.data_option} --seeds {seeds}"
    parts = [
        f"### {reproduction.name}, {scale.name}",
        runs_text(found, seeds, command) + _common_keys_text(reproduction, scale),
        markdown_table(*table_rows(reproduction, found)),
    ]
    if beside := derived_rows(reproduction, found):
        parts.append(markdown_table(["over several cells", "here", "the paper"], beside))
    if reproduction.claims:
        judged = [
            [text.replace(OURS, f"*{OURS}*"), answer.replace(WORDS["no"], f"**{WORDS['no']}**"), "<br>".join(parts)]
            for text, answer, parts in claim_rows(reproduction, scale, found)
        ]
        parts.append(markdown_table(["claim", "here", "its parts"], judged))
    parts += [f"**{text}**" for text in warning_texts(found)]
    if has_picture(found):
        parts.append(f"![{reproduction.title}, {scale.name}](images/{picture_name(reproduction, scale)})")
    return "\n\n".join(parts)


def _common_keys_text(reproduction: Reproduction, scale: Scale) -> str:
    keys = reproduction.common_keys(scale)
    return f" In all cells: `{keys_text(keys)}`." if keys else ""


def derived_rows(reproduction: Reproduction, found: TableResults) -> list[list[str]]:
    """Return the numbers over several cells as rows: text, ours, the paper's."""
    every = [(one, list(one.quantity.of(found).values())) for one in reproduction.derived]
    return [[one.text, _mean_text(values), one.printed] for one, values in every if values]


def has_picture(found: TableResults) -> bool:
    """Return whether a picture is worth drawing: one of a single cell shows no more than the table."""
    return sum(map(bool, found.cells.values())) > 1


def picture_name(reproduction: Reproduction, scale: Scale) -> str:
    return f"reproduce-{reproduction.name}-{scale.name}.png"


def table_rows(reproduction: Reproduction, found: TableResults) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: each cell, its number of seeds, and its measures beside the paper's numbers."""
    shown = [m for m in reproduction.measures if any(found.values(cell, m) for cell in found.cells)]
    header = ["", "seeds", *(measure.label for measure in shown)]
    lines = [
        [cell, str(len(by_seed)), *(_entry(reproduction, found, cell, measure) for measure in shown)]
        for cell, by_seed in found.cells.items()
        if by_seed
    ]
    return header, lines


def _entry(reproduction: Reproduction, found: TableResults, cell: str, measure: Measure) -> str:
    values = list(found.values(cell, measure).values())
    printed = reproduction.printed.get((cell, measure.label))
    return _mean_text(values) + (f" ({printed:.1f})" if printed is not None and values else "")


def _mean_text(values: Sequence[float]) -> str:
    return mean_and_spread([value / 100.0 for value in values]) if values else ""


def claim_rows(reproduction: Reproduction, scale: Scale, found: TableResults) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return each claim, whether it holds, and its parts."""
    lines: list[tuple[str, str, tuple[str, ...]]] = []
    for claim in reproduction.claims_at(scale):
        text = (f"{OURS}: {claim.text}" if claim.ours else claim.text) + (f" {CHANGED}" if claim.changed else "")
        verdict = claim.verdict(found)
        if verdict is None:
            lines.append((text, "not run", ()))
            continue
        by_few = " (one seed)" if verdict.seeds == 1 else ""
        lines.append((text, WORDS[verdict.answer] + by_few, verdict.parts))
    return lines


def warning_texts(found: TableResults) -> list[str]:
    """Warn of cells with collapsed heads, and of cells that were made from different data."""
    cells = [cell for cell, by_seed in found.cells.items() if any(result.collapsed for result in by_seed.values())]
    said = [f"Heads collapsed (they predict one class for nearly everything) in: {', '.join(cells)}."] if cells else []
    data: dict[str, set[str]] = {}  # fingerprints, by what cells are meant to read
    for result in (result for by_seed in found.cells.values() for result in by_seed.values() if result.data):
        data.setdefault(result.intended_data, set()).add(str(result.data))
    differ = any(len(fingerprints) > 1 for fingerprints in data.values())
    return said + (["These cells were not all made from the same data."] if differ else [])


def runs_text(found: TableResults, seeds: int, command: str) -> str:
    """Return the command and how many of its runs are stored; runs of other tables are counted apart."""
    every = _distinct_runs(found)
    own, wanted = sum(seed < seeds for _, seed in every), seeds * len(found.cells)
    runs = ("1 run" if own == 1 else f"{own} runs") if own == wanted else f"{own} of {wanted} runs"
    runs += f" and {len(every) - own} of other tables" if own < len(every) else ""
    return f"`{command}`: {runs}, {provenance_text(found)}"


def provenance_text(found: TableResults) -> str:
    """Say how long it took, where it ran, and with which code."""
    every = _distinct_runs(found).values()
    minutes = sum(result.seconds for result in every) / 60
    where, code = sorted({result.made_by for result in every}), sorted({result.code[:8] for result in every})
    return f"{minutes:.1f} minutes in total; {'; '.join(where)}; code {', '.join(code)}."


def _distinct_runs(found: TableResults) -> dict[tuple[str, int], CellResult]:
    """Return every run once: a run may be several cells."""
    return {(result.key, seed): result for by_seed in found.cells.values() for seed, result in by_seed.items()}


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    made = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in made)

"""docs/results.md, and the tables that a person sees: made of stored results, never typed."""

from collections.abc import Sequence
from statistics import mean, stdev

from manyheads.reproduce.base import Found, Measure, Reproduction
from manyheads.reproduce.results import Result, Stored
from manyheads.reproduce.runner import find
from manyheads.reproduce.scales import SCALES, Scale

WORDS = {"yes": "holds", "no": "**does not hold**", "unclear": "unclear: seeds disagree"}
HEAD = """# The paper, reproduced

Made by `manyheads reproduce --page docs/results.md` from the stored results in `experiments/mhd/results/`; nothing is
typed here. The paper trained ResNet-34 on ImageNet; here the same questions are asked at other scales, so what can be
compared is whether its claims hold, not the numbers.

An entry is the mean over seeds in percent, ± the standard deviation over seeds where there are several, and in brackets
what the paper printed. A claim *holds* where it is so for every seed, and *does not hold* where it is so for none;
behind it stand the differences that it speaks of, as means over seeds. *Ours*: not the paper's claim, and not counted
below. What each cell is, and what was tried where a claim fails: the notes in `experiments/mhd/`. Speed and memory:
[measurements.md](measurements.md).
"""


def results_page(names: Sequence[Reproduction], stored: dict[str, Stored]) -> str:
    """The whole page, for all scales that have results."""
    sections = [HEAD, _overview(names, stored)]
    for reproduction in names:
        parts = [
            part
            for scale in SCALES.values()
            if (part := _at_scale(reproduction, scale, stored.get(scale.name, {}))) is not None
        ]
        if parts:
            note = f"[Note](../experiments/mhd/{reproduction.name}/README.md)."
            sections += [
                f"## {reproduction.name}\n{reproduction.title}. The paper: {reproduction.where}. {note}",
                *parts,
            ]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _overview(names: Sequence[Reproduction], stored: dict[str, Stored]) -> str:
    """How many claims hold, at which scale."""
    shown = [scale for scale in SCALES.values() if stored.get(scale.name)]
    lines = []
    for reproduction in names:
        if not reproduction.claims:
            continue
        counts = [_count(reproduction, scale, stored[scale.name]) for scale in shown]
        lines.append([f"[{reproduction.name}](#{reproduction.name})", reproduction.title, *counts])
    header = ["", "question", *(f"claims that hold, {scale.name}" for scale in shown)]
    about = "\n".join(f"- *{scale.name}*: {scale.about}." for scale in shown)
    return f"{about}\n\n{rows(header, lines)}"


def _count(reproduction: Reproduction, scale: Scale, stored: Stored) -> str:
    """Of the paper's own claims."""
    found = find(reproduction, scale, stored)
    judged = [claim.verdict(found) for claim in reproduction.claims_at(scale) if not claim.ours]
    answers = [verdict.answer for verdict in judged if verdict is not None]
    if not answers:
        return ""
    unclear = f", {answers.count('unclear')} unclear" if "unclear" in answers else ""
    return f"{answers.count('yes')} of {len(answers)}{unclear}"


def _at_scale(reproduction: Reproduction, scale: Scale, stored: Stored) -> str | None:
    found = find(reproduction, scale, stored)
    if not any(found.cells.values()):
        return None
    seeds = max(len(by_seed) for by_seed in found.cells.values())
    data = {"digits": "", "cifar100": " --data FOLDER", "imagenet": " --data PACKED"}[scale.name]
    command = f"manyheads reproduce {reproduction.name} --scale {scale.name}{data} --seeds {seeds}"
    parts = [f"### {reproduction.name}, {scale.name}", made_with(found, command), rows(*table(reproduction, found))]
    if reproduction.claims:
        parts.append(rows(["claim", "here", "seeds", "by"], claims(reproduction, scale, found)))
    parts += warnings(found)
    parts.append(f"![{reproduction.title}, {scale.name}](images/{picture(reproduction, scale)})")
    return "\n\n".join(parts)


def picture(reproduction: Reproduction, scale: Scale) -> str:
    return f"reproduce-{reproduction.name}-{scale.name}.png"


def table(reproduction: Reproduction, found: Found) -> tuple[list[str], list[list[str]]]:
    """Header and rows: each cell, how many seeds, and its measures beside what the paper printed."""
    shown = [m for m in reproduction.measures if any(found.values(cell, m) for cell in found.cells)]
    header = ["", "seeds", *(measure.label for measure in shown)]
    lines = [
        [cell, str(len(by_seed)), *(_entry(reproduction, found, cell, measure) for measure in shown)]
        for cell, by_seed in found.cells.items()
        if by_seed
    ]
    return header, lines


def _entry(reproduction: Reproduction, found: Found, cell: str, measure: Measure) -> str:
    values = list(found.values(cell, measure).values())
    printed = reproduction.printed.get((cell, measure.label))
    ours = mean_and_spread(values) if values else ""
    return ours + (f" ({printed:.1f})" if printed is not None and values else "")


def mean_and_spread(values: Sequence[float]) -> str:
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def claims(reproduction: Reproduction, scale: Scale, found: Found) -> list[list[str]]:
    """Each claim, whether it holds, for how many seeds it was judged, and by how much."""
    lines = []
    for claim in reproduction.claims_at(scale):
        text = f"*Ours*: {claim.text}" if claim.ours else claim.text
        verdict = claim.verdict(found)
        if verdict is None:
            lines.append([text, "not run", "", ""])
        else:
            lines.append([text, WORDS[verdict.answer], str(verdict.seeds), verdict.evidence])
    return lines


def warnings(found: Found) -> list[str]:
    """Cells with heads that name one class only; cells that were made of different data."""
    cells = [cell for cell, by_seed in found.cells.items() if any(result.collapsed for result in by_seed.values())]
    said = [f"Heads collapsed (they name one class for nearly everything) in: {', '.join(cells)}."] if cells else []
    data = {result.data for by_seed in found.cells.values() for result in by_seed.values() if result.data}
    return said + (["**These cells were not all made of the same data.**"] if len(data) > 1 else [])


def made_with(found: Found, command: str) -> str:
    """The command, where and how long it ran, and by which code."""
    every: dict[tuple[str, int], Result] = {}
    for by_seed in found.cells.values():
        every |= {(result.key, seed): result for seed, result in by_seed.items()}
    where = sorted({f"{r.hardware}, {r.engine} engine, {r.precision}, torch {r.torch}" for r in every.values()})
    code = sorted({result.code[:8] for result in every.values()})
    minutes = sum(result.seconds for result in every.values()) / 60
    return (
        f"`{command}`: {len(every)} runs that took {minutes:.0f} minutes, one after the other; {'; '.join(where)}; "
        f"code {', '.join(code)}."
    )


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    made = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in made)

"""How the next question is shown: a sentence with the range, a picture, a table."""

from __future__ import annotations

from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import grown
from sweeps.plan.next_question import QUESTIONS
from sweeps.run.next_answer import NextAnswer
from sweeps.sections.chart import Bar, Bars
from sweeps.sections.formats import NONE, counted, effect, some
from sweeps.sections.section import Grid, Say, Section

_SIDES = {1: "{0.winner}", -1: "{0.loser}", 0: "not significant"}


def sentence(found: NextAnswer) -> str:
    """The range of the gap, and where another leads."""
    text = f"{found.group}, with one thing changed: {found.winner} over {found.loser} is"
    if not found.known:
        return f"{text} not known; no change that was asked for could be served."
    (least, low), (most, high) = found.known[0], found.known[-1]
    text += (
        f" {effect(low)} with {least.change} to {effect(high)} with {most.change}, the same winner"
        f" in {len(found.with_sign(1))} of {counted(len(found.known), 'change')}"
    )
    if turned := found.with_sign(-1):
        text += f"; {found.loser} leads with {some(turned)}"
    if level := found.with_sign(0):
        text += f"; not significant with {some(level)}"
    if lacking := [each.change for each in found.replies if each.gap is None]:
        text += f"; cannot be served: {some(lacking)}"
    return f"{text}."


def grid(found: NextAnswer) -> Grid:
    """Each change: what is asked, the gap, who leads."""
    heads = ["asked", "change", f"{found.winner} over {found.loser}", "leads"]
    rows = [["as described", "", effect(found.total), _SIDES[found.total.sign].format(found)]]
    for each in found.replies:
        asked = QUESTIONS[each.question].words if each.question in QUESTIONS else each.question
        told = [NONE, each.why.split(",")[0].split(":")[0]]
        if each.gap is not None:
            told = [effect(each.gap), _SIDES[found.signs[each.change]].format(found)]
        rows.append([asked, each.change, *told])
    idle = frozenset(i for i, row in enumerate(rows) if row[3] == _SIDES[0])
    return Grid("", heads, rows, idle)


def chart(found: NextAnswer) -> Bars:
    """The gap with each change, the largest first, beside that as described."""
    bars = [
        Bar(each.change, gap.mapped(grown), not found.signs[each.change])
        for each, gap in reversed(found.known)
    ]
    title = f"{found.group}: {found.winner} over {found.loser}, %, with one thing changed"
    own = Bar("as described", found.total.mapped(grown), not found.total.sign)
    return Bars(title, [own, *bars], "To scale in logarithms. Pale: not significant.",
                relative=True, figure="next")  # fmt: skip


def note(found: NextAnswer) -> str:
    """What the numbers are."""
    return (
        "Each change alone, for both sides, on the same requests; what is offered is measured again"
        " where the load is relative. (a to b):"
        f" {100 * LEVEL:.0f} % intervals, paired, n = {found.total.count} (Student's t on"
        f" logarithms), each by itself; who leads is corrected for {len(found.known)} changes"
        " (Holm)."
    )


def sections(every: list[NextAnswer]) -> list[Section]:
    """A section a gap."""
    return [
        Section(
            f"The next question: {found.group}, {found.winner} over {found.loser}",
            [Say(sentence(found), "verdict"), chart(found), grid(found), Say(note(found))],
            folded=True,
        )
        for found in every
    ]

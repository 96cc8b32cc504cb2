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


def sentence(answer: NextAnswer) -> str:
    """The range of the gap, and where another leads."""
    text = f"{answer.group}, with one thing changed: {answer.winner} over {answer.loser} is"
    if not answer.known:
        return f"{text} not known; no change that was asked for could be served."
    (least, low), (most, high) = answer.known[0], answer.known[-1]
    text += (
        f" {effect(low)} with {least.change} to {effect(high)} with {most.change}, the same winner"
        f" in {len(answer.with_sign(1))} of {counted(len(answer.known), 'change')}"
    )
    if turned := answer.with_sign(-1):
        text += f"; {answer.loser} leads with {some(turned)}"
    if level := answer.with_sign(0):
        text += f"; not significant with {some(level)}"
    if lacking := [each.change for each in answer.replies if each.gap is None]:
        text += f"; cannot be served: {some(lacking)}"
    return f"{text}."


def grid(answer: NextAnswer) -> Grid:
    """Each change: what is asked, the gap, who leads."""
    heads = ["asked", "change", f"{answer.winner} over {answer.loser}", "leads"]
    rows = [["as described", "", effect(answer.total), _SIDES[answer.total.sign].format(answer)]]
    for each in answer.replies:
        asked = QUESTIONS[each.question].words if each.question in QUESTIONS else each.question
        told = [NONE, each.why.split(",")[0].split(":")[0]]
        if each.gap is not None:
            told = [effect(each.gap), _SIDES[answer.signs[each.change]].format(answer)]
        rows.append([asked, each.change, *told])
    idle = frozenset(i for i, row in enumerate(rows) if row[3] == _SIDES[0])
    return Grid("", heads, rows, idle)


def chart(answer: NextAnswer) -> Bars:
    """The gap with each change, the largest first, beside that as described."""
    bars = [
        Bar(each.change, gap.mapped(grown), not answer.signs[each.change])
        for each, gap in reversed(answer.known)
    ]
    title = f"{answer.group}: {answer.winner} over {answer.loser}, %, with one thing changed"
    own = Bar("as described", answer.total.mapped(grown), not answer.total.sign)
    return Bars(title, [own, *bars], "To scale in logarithms. Pale: not significant.",
                relative=True, figure="next")  # fmt: skip


def note(answer: NextAnswer) -> str:
    """What the numbers are."""
    return (
        "Each change alone, for both sides, on the same requests; what is offered is measured again"
        " where the load is relative. (a to b):"
        f" {100 * LEVEL:.0f} % intervals, paired, n = {answer.total.count} (Student's t on"
        f" logarithms), each by itself; who leads is corrected for {len(answer.known)} changes"
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

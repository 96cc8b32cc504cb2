"""How an explanation is shown: a waterfall and its tables."""

from __future__ import annotations

from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import Interval, grown
from sweeps.plan.counterfactual import (
    CAUSES,
    HARDWARE,
)
from sweeps.run.explanation import Explanation
from sweeps.sections.chart import Bar, Bars
from sweeps.sections.formats import (
    NONE,
    SHOWN,
    effect,
    listed,
    more,
    share,
)  # fmt: skip
from sweeps.sections.section import Grid, Say, Section


def grids(explained: Explanation) -> list[Grid]:
    """The causes with what removes them, and the gap without costs of the hardware."""
    heads = ["cause", "removed by", "in this order", "in reverse order", "interaction",
             "share of the gap"]  # fmt: skip
    rows = [
        [part.words, CAUSES[part.cause].removed_by,
         *(effect(each) for each in (part.forward, part.reverse, part.interaction)),
         _share(part.forward, explained.total)]
        for part in explained.parts
    ]  # fmt: skip
    left, whole = explained.unexplained, explained.total
    rows.append(["not explained", "", effect(left), "", "", _share(left, whole)])
    rows.append([f"{explained.winner} over {explained.loser}", "", effect(whole), "", "", "100 %"])
    idle = frozenset(i for i, part in enumerate(explained.parts) if not part.forward.sign)
    costs = [
        [f"if {HARDWARE[cost]} took no time" if cost else "analytic memory", effect(gap)]
        for cost, gap in explained.hardware.items()
    ]
    return [Grid("", heads, rows, idle), Grid("", ["hardware", "gap"], costs)]


def _share(part: Interval, total: Interval) -> str:
    return share(part.mean / total.mean) if total.mean else NONE


def note(explained: Explanation) -> str:
    """What the numbers are."""
    text = (
        f"Factors of the gap and their {100 * LEVEL:.0f} % intervals (Student's t on paired "
        f"logarithms, n = {explained.total.count}); they multiply to the gap. Causes are removed"
        " from top to bottom, one after another; in reverse order from bottom to top, but KV layout"
        " first and the two steps to the ceiling last. Interaction: the one over the other. "
        "Pale: not significant. Causes are estimates, each with its own interval, not a family of"
        " tests."
    )
    if explained.unsaturated:
        text += f" Limited by the offered load: {listed(explained.unsaturated)}; these may do more."
    return text


def chart(explained: Explanation) -> Bars:
    """The waterfall, in the order of removal."""
    bars = [Bar(each.words, each.forward.mapped(grown), not each.forward.sign)
            for each in explained.parts]  # fmt: skip
    if abs(explained.unexplained.mean) > 1e-9:
        bars.append(Bar("not explained", explained.unexplained.mapped(grown)))
    title = f"{explained.winner} over {explained.loser}"
    return Bars(
        f"{explained.group}: {title}, %: what each cause makes of it",
        [*bars, Bar(title, explained.total.mapped(grown))], "To scale in logarithms.",
        relative=True, waterfall=True,        figure="waterfall",
    )  # fmt: skip


def sections(explanations: list[Explanation], where: str = "") -> list[Section]:
    """A section a pair. where: under which conditions, behind its first sentences, so that they
    stand for themselves."""
    return [
        Section(
            f"Why: {found.group}, {found.winner} over {found.loser}",
            [
                Say(f"{sentence(found)} {where}".rstrip(), "verdict"),
                chart(found),
                *grids(found),
                Say(note(found)),
            ],
            folded=True,
        )
        for found in explanations
    ]


_SEEN = 0.0005
"""A cause that makes less of a gap is written as none."""


def sentence(explained: Explanation) -> str:
    """The gap and its largest significant causes."""
    sure = sorted(
        (p for p in explained.parts if p.forward.sign and abs(p.forward.mean) >= _SEEN),
        key=lambda p: -abs(p.forward.mean),
    )
    told = ", ".join(f"{part.words} {effect(part.forward)}" for part in sure[:SHOWN])
    causes = f"Largest causes: {told}" if told else "No single cause is significant"
    total = more(explained.total.mapped(grown), explained.loser, named=True)
    return f"{explained.group}: {explained.winner} serves {total}. {causes}."

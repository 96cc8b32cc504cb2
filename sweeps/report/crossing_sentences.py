"""The sentences on where a lead changes sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sweeps.analyse.best import WIDE
from sweeps.analyse.crossing import Crossing
from sweeps.plan.crossing_findings import Crossed, Crossings, Search
from sweeps.plan.parameter import Parameter
from sweeps.sections.formats import (
    counted,
    gain,
    listed,
    ratio,
    share,
    some,
)  # fmt: skip


def break_evens(search: Search) -> str:
    """The answer as described, and how many parameters cross."""
    where = f"{search.where}: " if search.where else ""
    counts = Counter(each.outcome for each in search.numbers)
    cross = [_crossing(each) for each in search.numbers if each.outcome == "crosses"]
    text = f"{where}{search.ratio} is {ratio(search.now, named=True)} as described."
    if search.unfit:
        fit = "does" if len(search.unfit) == 1 else "do"
        text = f"{where}{listed(search.unfit)} {fit} not fit as described."
    text += f" {len(cross)} of {counted(len(search.numbers), 'assumed parameter')}"
    text += " crosses" if len(cross) == 1 else " cross"
    text += " break-even within a plausible range."
    text += f" Crossings: {some(cross)}." if cross else ""
    open_ = [f"{counts[each]} {each}" for each in ("undecided", "unfinished") if counts[each]]
    if unfit := counts["does not fit"]:
        open_.append(f"{unfit} {'does' if unfit == 1 else 'do'} not fit")
    return f"{text} Of the others: {listed(open_)}." if open_ else text


def _crossing(found: Crossed) -> str:
    if found.crossing is None:
        return found.name
    return f"{found.name} at {crossing_text(found.crossing, found.parameter)}"


def crossing_text(crossing: Crossing, parameter: Parameter) -> str:
    """Where it crosses, with the values between which it is undecided."""
    if crossing.low is None and crossing.high is None:
        return f"{parameter.text(crossing.at)} (whole range)"
    low = f"below {parameter.at(0)}" if crossing.low is None else parameter.text(crossing.low)
    high = f"above {parameter.at(1)}" if crossing.high is None else parameter.text(crossing.high)
    return f"{parameter.text(crossing.at)} ({low} to {high})"


def answer(crossings: Crossings) -> Iterator[str]:
    """Who wins in how many cells, contiguous policies first; where paging ties; what disputes
    change."""
    if not crossings.cells:
        yield "No cell has results of all policies yet."
        return
    total = len(crossings.cells)
    cells_in_all = counted(total, "combination")
    won = {name: [c for c in crossings.cells if c.winner == name] for name in crossings.policies}
    first = True
    for name, cells in won.items():  # contiguous policies before the one that scatters KV
        if cells:
            leads = [cell.verdict.gaps[0].total for cell in cells if cell.verdict]
            least, most = (end(leads, key=lambda lead: lead.mean) for end in (min, max))
            lead = gain(least, named=first)
            lead += f" to {gain(most)}" * (gain(least) != gain(most))
            free = sum(not cell.verdict.bound for cell in cells if cell.verdict)
            note = f"; KV memory does not limit it in {free}" if free else ""
            family = f" (corrected for {total})" * (first and total > 1)
            yield (
                f"{name} leads significantly in {len(leads)} of {cells_in_all}{family}, by"
                f" {lead}{note}."
            )
            first = False
    if none := [cell for cell in crossings.cells if cell.winner is None]:
        near = sum(cell.verdict.outcome == "close" for cell in none if cell.verdict)
        note = f"; in {near} the best differ by at most {share(WIDE)}" if near else ""
        yield f"No policy leads significantly in {len(none)} of {cells_in_all}{note}."
    yield from _ties(crossings)
    for noun, names in (
        ("objection", crossings.objections),
        ("disputed assumption", crossings.readings),
    ):
        if names:
            yield _disputes(crossings, noun, list(names))


def _ties(found: Crossings) -> Iterator[str]:
    """Where the first loses its lead."""
    ranges = [cell.numbers[0] for cell in found.cells]
    tied = sorted(each.at.mean for each in ranges if each.at)
    ends = " to ".join(dict.fromkeys(f"{each:.2f}" for each in (*tied[:1], *tied[-1:])))
    sides = Counter(each.side for each in ranges)
    told = [
        f"ties with the best of the others in {len(tied)}, where {ranges[0].name} is {ends}"
        if tied else "",
        f"is ahead at every value in {sides[1]}" if sides[1] else "",
        f"is behind at every value in {sides[-1]}" if sides[-1] else "",
    ]  # fmt: skip
    if any(told):
        where = f"Of {counted(len(found.cells), 'combination')}"
        yield f"{where}, {found.ours} {listed(filter(None, told))}."


def _disputes(found: Crossings, noun: str, names: list[str]) -> str:
    counts = {name: sum(name in cell.upheld for cell in found.under(name)) for name in names}
    several = len(names) > 1
    tests = sum(len(cell.pleas) for cell in found.cells)
    head = f"Changing {'each of ' * several}{counted(len(names), noun)} (corrected for {tests})"
    if not any(counts.values()):
        return f"{head} never changes the winner to another policy."
    most = max(counts, key=counts.__getitem__)
    of = counted(len(found.under(most)), "combination")
    where = f"{'at most ' * several}{counts[most]} of {of} ({most})"
    return f"{head} changes the winner in {where}."

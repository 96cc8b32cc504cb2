"""The sentences of changes one at a time, of break-evens and of the map of an answer: records into
words, as `sweeps.report.phrases` has them for groups, runs and studies."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.analyse.statistics import Interval, grown
from sweeps.plan.answer import AnswerCell, AnswerMap
from sweeps.plan.break_even import BreakEven, Crossing, Edge, Parameter
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.plan.what_if import Sensitivity, Together
from sweeps.report.formats import CI, aside, between, counted, effect, hundred, listed, ratio, said

_SHOWN = 3
"""Effects that a sentence names."""


def sensitivity(found: Sensitivity, compared: bool, alone: list[str]) -> str:
    """The largest effects on a rate, or on the ratio of two (`compared`) and so on the ranking;
    alone: the changes that are not several together."""
    moved = {name: found.effects[name] for name in alone if name in found.effects}
    sure = sorted((name for name in moved if moved[name].sign), key=lambda n: -abs(moved[n].mean))
    text = found.subject
    if compared:
        text += f" is {ratio(found.levels[AS_DESCRIBED])} as described"
    if sure:
        text += ". Effects on it" if compared else ""
        text += ", the largest: " if len(sure) > _SHOWN else ": "
        text += ", ".join(f"{name} {effect(moved[name])}" for name in sure[:_SHOWN])
    idle, mark = len(moved) - len(sure), ". " if sure or compared else ": "
    have = "has" if idle == 1 else "have"
    text += f"{mark}{idle} of {len(moved)} changes {have} no significant effect"
    return said(f"{text}; {_ranking(found)}" if compared else f"{text}.")


def _ranking(found: Sensitivity) -> str:
    """Which changes reverse or settle who leads."""
    now = found.levels[AS_DESCRIBED]
    levels = {name: level for name, level in found.levels.items() if name != AS_DESCRIBED}
    if now.sign == 0:
        decided = [name for name, level in levels.items() if level.sign]
        which = listed(decided) if decided else "none of the changes"
        return f"as described the two do not differ significantly, with {which} they do."
    reverse = [name for name, level in levels.items() if level.sign == -now.sign]
    level = [name for name, each in levels.items() if each.sign == 0]
    verb = "reverse" if len(reverse) > 1 else "reverses"
    text = f"{listed(reverse) if reverse else 'none'} {verb} the ranking."
    return f"{text} With {listed(level)} the two do not differ significantly." if level else text


def together(found: Together) -> str:
    """What changes do together, against each alone."""
    effects = ", ".join(f"{name} {effect(gain)}" for name, gain in found.effects.items())
    text = f"{found.name} ({', '.join(found.parts)}): {effects}"
    if found.excess is None:
        return said(f"{text}.")
    how = ("not significantly different from", "larger than", "smaller than")[found.excess.sign]
    product = f"the product of its parts' ratios {aside(effect(found.excess))}"
    return said(f"{text}; the ratio of {found.subject} is {how} {product}.")


def break_evens(pair: list[str], now: Interval | None, found: list[BreakEven]) -> str:
    """The answer as described, and how many parameters cross break-even."""
    names: dict[str, list[str]] = {}
    for each in found:
        names.setdefault(each.outcome, []).append(each.name)
    cross = names.get("crosses", [])
    verb = "crosses" if len(cross) == 1 else "cross"
    text = (
        f"{' / '.join(pair)} is {ratio(now)} as described. {len(cross)} of {len(found)} assumed"
        f" parameters {verb} break-even within {'its' if len(cross) == 1 else 'their'} plausible"
        f" range{f': {listed(cross)}' if cross else ''}"
    )
    for outcome in ("undecided", "unfinished"):
        if others := names.get(outcome):
            text += f"; {outcome}: {listed(others)}"
    return said(f"{text}.")


def break_even(found: BreakEven, pair: list[str]) -> str:
    """One parameter's."""
    return said(f"{found.name}: {_break_even(found, pair)}")


def _break_even(found: BreakEven, pair: list[str]) -> str:
    parameter, name = found.parameter, " / ".join(pair)
    if found.outcome == "unfinished":
        return f"search unfinished, {len(found.found)} values so far."
    ratios = ", ".join(f"{ratio(answer)} {where}" for where, answer in found.ends.items())
    if found.crossing:
        return f"{_across(parameter, found.crossing, pair)}; {name} is {ratios}."
    sought = "break-even" if parameter.ratio == 1 else f"a ratio of {parameter.ratio:g}"
    if found.outcome == "crosses":
        return f"crosses {sought}: {name} is {ratios}."
    if found.outcome == "undecided":
        edge = f"; {edge_text(found.edge, parameter, pair)}" if found.edge else ""
        return f"undecided {listed(found.undecided)}{edge}: {name} is {ratios}."
    span = "" if parameter.variants else f" from {parameter.at(0)} to {parameter.at(1)}"
    return f"does not cross {sought}{span}: {name} is {ratios}."


def _across(parameter: Parameter, crossing: Crossing, pair: list[str]) -> str:
    at = crossing_text(crossing, parameter)
    if parameter.ratio == 1:
        first, second = pair if crossing.falls else pair[::-1]
        return f"{first} leads below {at}, {second} above"
    how = "below" if crossing.falls else "above"
    return f"{' / '.join(pair)} is {how} {parameter.ratio:g} from {at} on"


def crossing_text(crossing: Crossing, parameter: Parameter) -> str:
    """Where it crosses, with the values between which it is undecided."""
    if crossing.low is None and crossing.high is None:
        return f"{crossing.at} (undecided over the whole range)"
    low = f"below {parameter.at(0)}" if crossing.low is None else crossing.low
    high = f"above {parameter.at(1)}" if crossing.high is None else crossing.high
    return f"{crossing.at} ({CI}{low} to {high})"


def edge_text(edge: Edge, parameter: Parameter, pair: list[str]) -> str:
    """From where on one leads significantly."""
    side = f"{'above' if edge.above else 'below'} {edge.at}"
    if parameter.ratio == 1:
        return f"{pair[0 if edge.ahead else 1]} leads significantly {side}"
    return f"significantly {'more' if edge.ahead else 'less'} than {parameter.ratio:g} {side}"


# The map of an answer


def answer(found: AnswerMap) -> Iterator[str]:
    """Who wins in how many cells, on which conditions; the ties; the objections and readings; each
    cell."""
    if not found.cells:
        yield "No cell has results of all policies yet."
        return
    yield said(_answer(found))
    yield from _ties(found)
    for name, (of, _) in found.objections.items():
        yield f"Objection of {of}, '{name}': {_moved(found, name)}."
    for name in found.readings:
        won = listed(f"{who or 'none'} {count}" for who, count in found.won(name).items() if count)
        yield f"Reading '{name}': cells won: {won}; {_moved(found, name)}."
    yield from (said(_cell(found, cell)) for cell in found.cells)


def _answer(found: AnswerMap) -> str:
    count = len(found.cells)
    won = {name: [c for c in found.cells if c.winner == name] for name in found.policies}
    parts = [
        f"{name} serves the most in {len(cells)} ({_spread(cells)} more than the next)"
        for name, cells in sorted(won.items(), key=lambda item: -len(item[1]))
        if cells
    ]
    undecided = count - sum(map(len, won.values()))
    unbound = sum(not cell.bound for cell in found.cells)
    if undecided:
        why = f" (in {unbound} KV memory is not the limit)" if unbound else ""
        parts.append(f"there is no significant winner in {undecided}{why}")
    return (
        f"{found.device}, {found.model}, saturated: of {counted(count, 'combination')} of weight"
        f" format, lengths and limit, {listed(parts)}. KV is read equally fast wherever it lies;"
        f" {counted(found.replications, 'replication')} from different hours, 95 % confidence."
    )


def _spread(cells: list[AnswerCell]) -> str:
    """From the least to the largest lead."""
    leads = sorted(grown(cell.lead.mean) for cell in cells)
    ends = dict.fromkeys(hundred(lead, 1 if lead < 0.1 else 0) for lead in (leads[0], leads[-1]))
    return f"{' to '.join(ends)} %"


def _ties(found: AnswerMap) -> Iterator[str]:
    """Where the policy that scatters KV loses its lead, where KV memory is the limit."""
    bound = [cell for cell in found.cells if cell.bound]
    tied = sorted((c for c in bound if c.tied), key=lambda c: c.tied.mean if c.tied else 0.0)
    ahead, behind = ([c.name for c in bound if c.side == side] for side in (1, -1))
    if tied:
        ends = [f"{c.tied.mean:.2f} ({c.name})" for c in tied if c.tied]
        where = f"between {ends[0]} and {ends[-1]}" if len(ends) > 1 else ends[0]
        yield (
            f"{found.scattered} ties with the best contiguous policy in"
            f" {counted(len(tied), 'combination')}, where scattered KV is read at {where} of the"
            " contiguous bandwidth; it serves more above."
        )
    if ahead:
        yield f"At every ratio {found.scattered} serves more: {'; '.join(ahead)}."
    if behind:
        yield f"At no ratio up to 1 {found.scattered} serves more: {'; '.join(behind)}."


def _cell(found: AnswerMap, cell: AnswerCell) -> str:
    first, second = cell.order[:2]
    if cell.lead.sign == 0:
        text = f"{first} and {second} do not differ significantly {aside(effect(cell.lead))}"
    else:
        text = f"{first} serves {effect(cell.lead)} over {second}"
    text += "" if cell.bound else ", KV memory not being its limit: no ranking"
    if found.scattered not in (first, second):
        text += f"; {found.scattered} over {cell.best_contiguous} {effect(cell.scattered)}"
    text += f"; tie at {tie_text(found, cell)}"
    pleas = [f"'{name}' (to {cell.pleas[name][0]})" for name in cell.upheld]
    text += f"; changes hands with {listed(pleas)}" if pleas else ""
    return f"{cell.name}: {text}."


def _moved(found: AnswerMap, case: str) -> str:
    """The cells that change hands with an objection or under a reading."""
    known = found.under(case)
    upheld = [cell for cell in known if case in cell.upheld]
    opened = sum(case in cell.opened for cell in known)
    names = f": {listed(_hands(cell, case) for cell in upheld)}" if upheld else ""
    counts = f"{len(upheld)} of {counted(len(known), 'combination')}"
    lost = f"; in {opened} the lead is no longer significant" if opened else ""
    return f"{counts} change hands{names}{lost}"


def _hands(cell: AnswerCell, name: str) -> str:
    first, lead = cell.pleas[name]
    return f"{cell.name} to {first} (+{hundred(grown(lead.mean), 1)} %)"


def tie_text(found: AnswerMap, cell: AnswerCell) -> str:
    """Where a cell ties, or that it does not in the range."""
    if cell.tied is not None:
        return between(f"{cell.tied.mean:.2f}", cell.tied, lambda value: f"{value:.2f}")
    if cell.side is None:
        return "a ratio that is not found yet"
    side = "ahead" if cell.side > 0 else "behind"
    ends = f"from {min(cell.found):g} to {max(cell.found):g}"
    return f"no ratio, {found.scattered} {side} {ends}"

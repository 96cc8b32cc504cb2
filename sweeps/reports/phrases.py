"""The sentences of reports: each function turns records of `sweeps.reports.facts` into words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sweeps.experiments.break_even import Parameter
from sweeps.experiments.sweep import DESCRIBED
from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.reports.facts import (
    AnswerCell,
    AnswerMap,
    BreakEven,
    CaseOutcome,
    Cause,
    Crossing,
    Dependence,
    Edge,
    Gap,
    MetricChange,
    RandomAccess,
    Reference,
    Sensitivity,
    StudyGain,
    Together,
    Verdict,
)
from sweeps.reports.formats import (
    CI,
    amount,
    aside,
    between,
    counted,
    effect,
    hundred,
    listed,
    percent,
    points,
    ratio,
    said,
    share,
)
from sweeps.results.figures import ATTENTION, KV_MEMORY, PREFILL, WEIGHTS, limit_word
from sweeps.results.statistics import Interval, grown

if TYPE_CHECKING:
    from hwmodel.measure.racm import Condition

_SHOWN = 3
"""Effects that a sentence names."""
_MOST = 200
"""No more replications than this are asked for."""
PHASE_WORDS = {PREFILL: "prefill", ATTENTION: "attention", WEIGHTS: "reading weights"}


# The outcome of a group


def verdict(found: Verdict) -> str:
    """Who leads, by how much and why."""
    words = {"won": _won, "undecided": _undecided, "unbound": _unbound, "alone": _alone}
    return said(f"{found.title}: {words[found.outcome](found)}")


def short(found: Verdict) -> str:
    """The outcome in a few words."""
    words = {"undecided": "undecided", "unbound": "KV memory not the limit"}
    return words.get(found.outcome) or (f"{found.best} wins" if found.best else "no results")


def _alone(found: Verdict) -> str:
    return f"only {found.leader} has results." if found.leader else "no results yet."


def _won(found: Verdict) -> str:
    if found.reads:
        return f"{_rate(found)}, {_more(found.behind, 'faster')}.{_kv_share(found)}"
    decided = listed(found.decided_by)
    return f"{_rate(found)}, {_more(found.behind)}. Decided by {decided}.{_why(found.behind)}"


def _undecided(found: Verdict) -> str:
    leader, close, behind = found.leader, found.close, found.behind
    if any(gap.total.count < 2 for gap in close):
        names = listed([leader, *(gap.other for gap in close)])
        return f"one replication gives no interval, so {names} are not ranked."
    others = [f"{gap.other} {aside(percent(gap.total, '+'))}" for gap in close]
    text = f"{leader} does not differ significantly from {listed(others, 'or')}"
    if len(close) == 1:
        difference = aside(percent(close[0].total, "+"))
        text = f"{leader} and {close[0].other} do not differ significantly {difference}"
    if found.reads:
        faster = f"; {leader} is {_more(behind, 'faster')}" if behind else ""
        return f"{_rate(found)}; {text}{faster}.{_kv_share(found)}"
    if behind:
        text += f"; {leader} serves {_more(behind)}"
    return f"{text}.{_needed(found)}{_why([*close, *behind])}{_compute_bound(found)}"


def _unbound(found: Verdict) -> str:
    """KV memory did not limit the leader: what did, and whom it did limit all the same."""
    count = found.preemptions
    preempted = f"{count:.2g} preemptions per request" if count else "no preemptions"
    rest = {name: part for name, part in found.limits.items() if name != KV_MEMORY}
    limits = [f"{share(found.limits.get(KV_MEMORY, 0.0))} of the time", preempted]
    if rest:
        name = max(rest, key=lambda key: rest[key])
        limits.append(f"{limit_word(name)} {share(rest[name])}")
    text = f"KV memory did not limit {found.leader} ({', '.join(limits)}), so there is no ranking."
    if bound := [gap for gap in found.gaps if gap.bound]:
        names = listed(gap.other for gap in bound)
        note = "" if all(gap.total.sign > 0 for gap in bound) else " (not all significant)"
        text += f" It did limit {names}; {found.leader} serves {_more(bound)}{note}."
    return text


def _rate(found: Verdict) -> str:
    if found.reads:
        return f"{found.leader} reads KV at {found.rate:,.1f} GB/s"
    return f"{found.leader} serves {found.rate:,.1f} output tokens/s"


def _more(gaps: list[Gap], word: str = "more") -> str:
    return listed(f"{percent(gap.total)} {word} than {gap.other}" for gap in gaps)


def _kv_share(found: Verdict) -> str:
    if found.kv_share is None:
        return ""
    return f" Reading KV takes {share(found.kv_share)} of a step; the gap applies to that share."


def _needed(found: Verdict) -> str:
    count = counted(max(gap.total.count for gap in found.close), "replication")
    if found.needed > _MOST:
        return f" {count} do not resolve the difference, nor would {_MOST}."
    needed = math.ceil(found.needed)
    return (
        f" {count} do not resolve the difference; --set replications={needed} would, if it holds."
    )


def _compute_bound(found: Verdict) -> str:
    if found.compute is None:
        return ""
    return (
        f" Each of these is compute-bound for at least {share(found.compute)} of its step time,"
        " where a larger batch gains nothing."
    )


def _why(gaps: list[Gap]) -> str:
    """The effect of memory layout, and what else there is where a gap is significant."""
    rest = (_rest(gap) for gap in gaps if gap.total.sign > 0)
    return f" {'; '.join([_layout(gaps), *rest])}."


def _layout(gaps: list[Gap]) -> str:
    parts = [(gap.other, gap.layout) for gap in gaps if gap.layout is not None]
    if len(parts) < len(gaps):
        return "The effect of memory layout is not known without the analytic control"
    sure = [f"{points(part)} against {other}" for other, part in parts if part.sign]
    unsure = [
        f"{aside(points(part))[1:-1]}, against {other}" for other, part in parts if not part.sign
    ]
    if not sure:
        return f"The effect of memory layout is not significant ({'; '.join(unsure)})"
    rest = f"; its other effects are not significant ({'; '.join(unsure)})" if unsure else ""
    return f"Memory layout accounts for {listed(sure)}{rest}"


def _rest(gap: Gap) -> str:
    """What is not layout, in figures of the two."""
    if not gap.rest_counts and gap.analytic is not None:
        there = aside(percent(gap.analytic, "+"))
        return f"on memory without banks {gap.best} does not lead {gap.other} {there}"
    return f"{gap.other} {listed(map(_cause, gap.causes))}"


def _cause(cause: Cause) -> str:
    figures = cause.figures
    match cause.kind:
        case "reservation":
            batch, batch_there, used, used_there = figures
            return (
                f"runs {amount(batch)} requests at once against {amount(batch_there)} and uses"
                f" {share(used)} of what it reserves against {share(used_there)}"
            )
        case "slots":
            reserved, stored, holes, head = map(share, figures)
            return (
                f"reserves {reserved} of KV memory while it binds (uses {stored}), {holes} are"
                f" holes and {head} wait for the head of the line"
            )
        case "recompute":
            time, time_there, preempted = figures
            return (
                f"spends {share(time)} of its time on prefill against {share(time_there)}, with"
                f" {amount(preempted)} preemptions per request"
            )
        case "load":
            limit = limit_word(cause.name)
            return f"was limited by {limit} for {share(figures[0])} of the time, not by KV memory"
    same = "has a similar batch and few preemptions"
    if not figures:
        return same
    times = f"{share(figures[0])} of its time on {PHASE_WORDS[cause.name]}"
    return f"{same} but spends {times} against {share(figures[1])}"


def reference(found: Reference) -> str:
    """What a reference serves against each competitor."""
    memory = " on memory without banks" if found.analytic else ""
    gains = listed(f"{percent(gain, '+')} against {name}" for name, gain in found.gains.items())
    return said(f"{found.title}: reference {found.name}{memory}: {gains}.")


# A whole run


def dependence(found: Dependence) -> Iterator[str]:
    """Whether the winner depends on an axis; nothing where there is none."""
    winners, where = found.winners, f"{found.where}: " if found.where else ""
    told = "; ".join(f"{value}: {short(each)}" for value, each in found.outcomes)
    reads = any(each.reads for _, each in found.outcomes)
    best = "reads fastest" if reads else "serves the most"
    if len(winners) == 1 and all(each.outcome == "won" for _, each in found.outcomes):
        values = ", ".join(value for value, _ in found.outcomes)
        yield f"{where}{winners[0]} {best} for every {_axis(found.axis)} ({values})."
    elif winners and found.asked:
        yield f"{where}Which {found.compared} {best} depends on the {_axis(found.axis)} ({told})."
    elif len(winners) > 1:
        yield f"{where}undecided: the winner changes with {found.axis} ({told})."


def cases(found: list[CaseOutcome]) -> Iterator[str]:
    """The outcomes counted, then each in a line; marked where an assumption turns it."""
    groups: dict[str, list[str]] = {}
    for each in found:
        name = each.verdict.title + " [assumed]" * bool(each.hangs_on)
        groups.setdefault(short(each.verdict), []).append(name)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    told = ", ".join(
        f"{what} in {len(who)}" + f" ({'; '.join(who)})" * bool(i)  # the most go without names
        for i, (what, who) in enumerate(ranked)
    )
    marked = sum(bool(each.hangs_on) for each in found)
    note = f" An assumption turns {marked} of them, marked [assumed]." if marked else ""
    yield f"Of {counted(len(found), 'case')}: {told}.{note}"
    for each in found:
        turned = [f"{name}: {short(each.controls[name])}" for name in each.hangs_on]
        mark = f" [assumed; {'; '.join(turned)}]" if turned else ""
        decided = listed(each.verdict.decided_by)
        why = f"; decided by {decided}" if each.verdict.outcome == "won" else ""
        lead = ""
        if each.verdict.gaps:
            first, gap = each.verdict.leader, each.verdict.gaps[0]
            lead = f" ({first} over {gap.other}: {percent(gap.total, '+')})"
        yield said(f"{each.verdict.title}: {short(each.verdict)}{lead}{why}.{mark}")


def _axis(axis: str) -> str:
    return axis if axis.split(".")[0] not in DESCRIBED or "." in axis else axis.replace("_", " ")


def devices(where: str, tops: list[tuple[str, str, float]]) -> str:
    """How the best of each device compare: (device, competitor, output tokens/s), best first."""
    (first, best, most), *rest = tops
    told = listed(
        f"{most / rate:.1f} times as many as {device} with {name}" for device, name, rate in rest
    )
    start = f"{where}: " if where else ""
    return f"{start}{first} with {best} serves {most:,.1f} output tokens/s, {told}."


def changed_winner(where: str, here: Verdict, there: Verdict, names: tuple[str, str]) -> str:
    """Another outcome elsewhere; names: what to call here and there."""
    told = f"{names[0]}: {short(here)}; {names[1]}: {short(there)}"
    return f"{here.title}: {where} ({told})."


# What changes do, and where a parameter breaks even


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
    sought = "break-even" if parameter.even == 1 else f"a ratio of {parameter.even:g}"
    if found.outcome == "crosses":
        return f"crosses {sought}: {name} is {ratios}."
    if found.outcome == "undecided":
        edge = f"; {edge_text(found.edge, parameter, pair)}" if found.edge else ""
        return f"undecided {listed(found.undecided)}{edge}: {name} is {ratios}."
    span = "" if parameter.choice else f" from {parameter.at(0)} to {parameter.at(1)}"
    return f"does not cross {sought}{span}: {name} is {ratios}."


def _across(parameter: Parameter, crossing: Crossing, pair: list[str]) -> str:
    at = crossing_text(crossing, parameter)
    if parameter.even == 1:
        first, second = pair if crossing.falls else pair[::-1]
        return f"{first} leads below {at}, {second} above"
    how = "below" if crossing.falls else "above"
    return f"{' / '.join(pair)} is {how} {parameter.even:g} from {at} on"


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
    if parameter.even == 1:
        return f"{pair[0 if edge.ahead else 1]} leads significantly {side}"
    return f"significantly {'more' if edge.ahead else 'less'} than {parameter.even:g} {side}"


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


# Two runs


def inputs(asked: list[str], count: int, programs: Iterable[str]) -> str:
    """asked: what the runs were asked that differs, in words; count: inputs that differ in all."""
    if not count:
        text = "Inputs: the same"
    elif not asked:
        text = f"Inputs: the same settings; the descriptions differ in {counted(count, 'place')}"
    else:
        verb = "differs" if len(asked) == 1 else "differ"
        text = f"Inputs: {counted(len(asked), 'place')} {verb}: {'; '.join(asked[:_LISTED])}"
        text += f" and {len(asked) - _LISTED} more" if len(asked) > _LISTED else ""
    code = ", ".join(programs)
    return f"{text}. The programs differ in {code}." if code else f"{text}."


_LISTED = 12
"""Inputs that differ and points that sentences name; tables have them all."""


def results(
    count: int, same: bool, changes: list[tuple[str, MetricChange]], b: str
) -> Iterator[str]:  # fmt: skip
    """count: points in both; same: bit for bit; changes: of output tokens/s, by point."""
    if not count:
        yield "Results: the two have no point in common."
    elif same:
        yield f"Results: the same, bit for bit, in all {count} points."
    elif changes and all(change.certain == "the same" for _, change in changes):
        yield f"Results: the same output tokens/s in every replication of {len(changes)} points."
    else:
        yield from (f"{title}: {_change(change, b)}." for title, change in changes[:_LISTED])
        if len(changes) > _LISTED:
            yield f"Results: {len(changes) - _LISTED} more points are in the table."


def _change(change: MetricChange, b: str) -> str:
    means = f"{change.theirs:,.1f} output tokens/s in {b} against {change.ours:,.1f}"
    match change.certain:
        case "the same":
            return f"{means}, the same in every replication"
        case "unknown":
            mean = f"{100 * change.change.mean:+.1f} %"
            return f"{means} ({mean}); one replication gives no interval"
        case "not significant":
            return f"{means}, not significantly different {aside(percent(change.change, '+'))}"
        case "more":
            return f"{means}, {percent(change.change)} more"
    found = change.change
    return f"{means}, {percent(Interval(-found.mean, -found.high, -found.low, found.count))} less"


# A study


def no_trial(count: int, failed: int) -> str:
    """No trial may be chosen."""
    return f"None of {counted(count, 'trial')} meets the constraints; {failed} failed."


def best_so_far(trial: int, value: float, metric: str) -> str:
    """The best trial of a search that has no finale yet."""
    return (
        f"Best so far: trial {trial}, {value:,.4g} {metric} on the replications of the search,"
        " which is biased upwards; the finale measures it on others."
    )


def study(found: StudyGain) -> Iterator[str]:
    """What the chosen trial gained, how much of the gap it closes, what limits it."""
    gains = [f"{percent(gain)} against {name}" for name, gain in found.gains.items() if gain.sign]
    idle = [f"{n} {aside(percent(gain, '+'))}" for n, gain in found.gains.items() if not gain.sign]
    if idle:
        gains.append(f"not significantly different from {listed(idle, 'or')}")
    text = (
        f"On {counted(found.replications, 'replication')} not used in the search, {found.chosen}"
        f" has {found.mean:,.1f} {found.metric}: {'; '.join(gains)}."
    )
    if found.over_base == -1:
        text += " The search found nothing better than the base."
    elif found.over_base == 0:
        text += " The search found nothing significantly better than the base."
    yield said(text)
    if found.first is not None:
        yield said(_added(found))
    for name, part in found.closed.items():
        if part is None:
            yield f"{name} is not above the base in every replication: there is no gap to close."
        else:
            yield said(f"Of the gap from the base to {name}, {percent(part)} is closed.")
    if found.limit is not None:
        yield _unused(found.chosen, **found.limit)


def _added(found: StudyGain) -> str:
    """What the search added to the best of the trials that needed none."""
    against = f"the best trial without a search, {found.first}"
    if found.added is None:
        return f"The search added nothing to {against}."
    if found.added.sign == 0:
        resolved = f"that {counted(found.replications, 'replication')} resolve"
        return (
            f"The search added nothing {resolved} to {against} {aside(percent(found.added, '+'))}."
        )
    if found.added.sign == found.sign:
        return f"The search added {percent(found.added)} to {against}."
    return f"The search found worse than {against}: {percent(found.added)}."


def _unused(chosen: str, bounds: list[int], unused: dict[str, float], **_: Any) -> str:
    least, ours, base = (share(unused[name], 1) for name in ("least", "chosen", "base"))
    return (
        f"With all output lengths known, {len(bounds)} buckets would leave at least {least} of the"
        f" output reservation unused over time (bounds {', '.join(map(str, bounds))} tokens); the"
        f" quantiles of {chosen} leave {ours}, those of the base {base}."
    )


# Random access


def random_access(found: RandomAccess) -> list[str]:
    """The answer, what changes it, where alpha reaches the threshold, what else limits."""
    lines = [
        f"Random extents of {size_text(found.extent)} reach {alpha_text(found.alpha)} of sequential"
        f" bandwidth on {found.place} ({condition_text(found.condition)}){_range(found)}:"
        f" {found.answer}"
        f"{_reason(found)}."
    ]
    if found.reached_at is None:
        lines.append(f"No extent up to {size_text(found.longest)} reaches {found.threshold:g}.")
    else:
        reached = size_text(found.reached_at)
        lines.append(f"The smallest extent that reaches {found.threshold:g} is {reached}.")
    if found.descriptors is not None:
        size, cost = found.descriptors
        lines.append(
            f"Up to {size_text(size)} the DMA engines are the limit, not the memory: "
            f"{cost:g} ns per descriptor."
        )
    return list(map(said, lines))


def _range(found: RandomAccess) -> str:
    """Least to most over the plausible variants and the device as described, and which they are."""
    if not found.plausible:
        return ""
    every = {AS_DESCRIBED: found.alpha.mean}
    every |= {name: alpha.mean for name, alpha in found.plausible.items()}
    least, most = min(every, key=every.__getitem__), max(every, key=every.__getitem__)
    return (
        f", {every[least]:.2f} ({least}) to {every[most]:.2f} ({most}) over"
        f" {counted(len(found.plausible), 'plausible variant')}"
    )


def _reason(found: RandomAccess) -> str:
    """Why it is undecided, where it is."""
    texts = [
        f"{alpha_text(alpha)} with {difference_text(condition, found.condition)}"
        for condition, alpha in found.flipping
    ]
    texts += [f"{alpha_text(found.plausible[name])} with {name}" for name in found.turning]
    if texts:
        return f" at a threshold of {found.threshold:g}, because it is {listed(texts)}"
    if found.answer == "undecided":
        return f", because the interval contains the threshold of {found.threshold:g}"
    return ""


def alpha_text(alpha: Interval) -> str:
    """`0.86 (95 % CI 0.85 to 0.87)`."""
    return between(f"{alpha.mean:.2f}", alpha, lambda value: f"{value:.2f}")


def size_text(size: int) -> str:
    """`16 KiB`, `48 B`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def condition_text(condition: Condition) -> str:
    """All of a condition, in words."""
    window = condition.window_bytes
    parts = [f"read share {share(condition.read_share)}", f"queues {_queues(condition)}"]
    return ", ".join([*parts, *([] if window is None else [f"window {size_text(window)}"])])


def difference_text(condition: Condition, described: Condition) -> str:
    """What distinguishes a condition from the described one, in words."""
    if condition == described:
        return AS_DESCRIBED
    if condition.read_share != described.read_share:
        return f"read share {share(condition.read_share)}"
    if condition.window_bytes != described.window_bytes:
        return f"window {size_text(condition.window_bytes or 0)}"
    return f"queues {_queues(condition)}"


def _queues(condition: Condition) -> str:
    reads, writes = condition.read_queue, condition.write_queue
    return str(reads) if reads == writes else f"{reads} and {writes}"

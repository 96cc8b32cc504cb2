"""The sentences of reports: each function turns records of `sweeps.analyse.facts` into words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from sweeps.analyse.cases import CaseOutcome
from sweeps.analyse.facts import Cause, Dependence, Gap, MetricChange, Reference, Verdict
from sweeps.analyse.figures import ATTENTION, KV_MEMORY, PREFILL, WEIGHTS, limit_word
from sweeps.analyse.statistics import Interval
from sweeps.plan.layout import DESCRIBED
from sweeps.report.formats import amount, aside, counted, listed, percent, points, said, share
from sweeps.study.trials import StudyGain

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

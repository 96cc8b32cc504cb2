"""The sentences of reports: each template turns a record of findings into one or a few.

What is found of a single cell, card or parameter is a column of the table beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sweeps.analyse.facts import Dependence, Gap, MetricChange, Reference, Turned, Verdict
from sweeps.analyse.figures import KV_MEMORY, limit_word
from sweeps.analyse.label import label
from sweeps.analyse.random_access import RandomAccess
from sweeps.analyse.statistics import Interval, grown
from sweeps.analyse.table import Table
from sweeps.analyse.verdict import MOST
from sweeps.plan.answer import AnswerCell, AnswerMap
from sweeps.plan.atlas import COSTLY, Enough
from sweeps.plan.break_even import Crossing, Search
from sweeps.plan.layout import DESCRIBED
from sweeps.plan.paged_findings import Effects
from sweeps.plan.paper_findings import DatasetResult
from sweeps.plan.parameter import Parameter
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.plan.what_if import Changes, Sensitivity
from sweeps.report.formats import (
    between,
    counted,
    difference_text,
    effect,
    either_way,
    gain,
    hundred,
    listed,
    more,
    percent,
    ratio,
    share,
    size_text,
)
from sweeps.run.explanation import Explanation
from sweeps.study.trials import BASE, StudyGain

_SHOWN = 3
"""Names that a sentence lists; tables have all."""
_DWARFS = 5.0
"""One effect makes a gap rather than another where it is more than this many times as large
(assumed)."""


# What every lead ends with


def conditions(table: Table) -> str:
    """What was run: model, requests, load, replications, as far as all of the run has them."""
    base, axes = table.config["base"], {path.split(".")[0] for path in table.config["axes"]}
    parts = [label(base[key]) for key in ("device", "model", "workload")
             if base.get(key) and key not in axes]  # fmt: skip
    if "load" not in axes and (load := _load(base.get("load"), base.get("arrivals"))):
        parts.append(load)
    counts = [len(row.replications) for group in table.groups for row in group.rows]
    if base.get("requests"):
        parts.append(f"{base['requests']:,} requests")
    parts.append(counted(max(counts, default=0), "replication"))
    return f"Conditions: {', '.join(parts)}."


def _load(load: Any, arrivals: Any) -> str:
    match load or arrivals:
        case {"rate_per_s": rate} if rate:
            return f"{rate:g} requests/s"
        case {"relative": times} if times:
            return f"{times:g} times the {(load or {}).get('of', 'best')} capacity"
        case {"goodput": goal} if goal:
            kept = share(goal.get("attainment", 1.0))
            return f"TTFT {goal.get('ttft', 'any')} and TPOT {goal.get('tpot', 'any')} for {kept}"
        case {"process": "all_at_once"}:
            return "saturated"
        case {"process": "closed", "clients": clients}:
            return f"{clients} clients"
    return ""


# A group, and groups together


def verdict(found: Verdict, compared: str = "policy") -> str:
    """Who leads, by how much and why."""
    words = {"won": _won, "undecided": _undecided, "unbound": _unbound, "alone": _alone}
    return f"{found.title}: {words[found.outcome](found, compared)}"


def short(found: Verdict) -> str:
    """The outcome in a few words."""
    words = {"undecided": "undecided", "unbound": "KV memory not the limit"}
    return words.get(found.outcome) or (f"{found.best} wins" if found.best else "no results")


def _alone(found: Verdict, compared: str) -> str:
    who = _who(found.leader, compared)
    return f"only {who} has results." if found.leader else "no results yet."


def _won(found: Verdict, compared: str) -> str:
    decided = f" Decided by {listed(found.decided_by)}." if found.decided_by else ""
    reads = (
        "" if found.kv_share is None else f" Reading KV takes {share(found.kv_share)} of a step."
    )
    why = reads if found.reads else decided
    return f"{_rate(found, compared)}, {_gaps(found, found.behind, compared)}.{why}"


def _undecided(found: Verdict, compared: str) -> str:
    close = [gap.total for gap in found.close]
    names = [_who(name, compared) for name in (found.leader, *(gap.other for gap in found.close))]
    who = listed(names) if len(names) <= _SHOWN else f"{len(names)} {_many(compared)}"
    if any(total.count < 2 for total in close):
        return f"one replication gives no interval, so {who} are not ranked."
    widest = max(close, key=lambda total: total.half)
    if widest.low == widest.high == 0:
        text = f"{who} serve the same."
    elif widest.high < 1:
        text = f"{who} do not differ significantly: {either_way(widest)}."
    else:
        text = f"{who} do not differ significantly."
    if widest.half > 0:
        count = f"More than {MOST}" if found.needed is None else f"About {found.needed}"
        text += f" {count} replications would resolve it (now {widest.count})."
    if found.behind:
        text += f" {_rate(found, compared)}, {_gaps(found, found.behind, compared)}."
    return text


def _unbound(found: Verdict, compared: str) -> str:
    """KV memory did not limit the leader: what did, and whom it did limit all the same."""
    leader = _who(found.leader, compared)
    rest = {name: part for name, part in found.limits.items() if name != KV_MEMORY}
    name = max(rest, key=lambda key: rest[key], default="")
    limit = f" (limit: {limit_word(name)}, {share(rest[name])} of the time)" if rest else ""
    text = f"no ranking, as KV memory does not limit {leader}{limit}."
    if bound := [gap for gap in found.behind if gap.bound]:
        text += f" It limits {listed(gap.other for gap in bound)};"
        text += f" {leader} serves {_gaps(found, bound, compared)}."
    return text


def _rate(found: Verdict, compared: str) -> str:
    rate = f"{found.rate:,.{1 if found.rate < 1000 else 0}f}"
    does = f"reads KV at {rate} GB/s" if found.reads else f"serves {rate} output tokens/s"
    return f"{_who(found.leader, compared)} {does}"


def _gaps(found: Verdict, gaps: list[Gap], compared: str) -> str:
    word = "faster" if found.reads else "more"
    told = [
        more(gap.total, _who(gap.other, compared), word, named=not i)
        for i, gap in enumerate(gaps[:_SHOWN])
    ]
    if len(gaps) > _SHOWN:
        told.append(f"yet {word} than {len(gaps) - _SHOWN} others")
    return listed(told)


def _who(name: str, compared: str) -> str:
    """A competitor; a number alone is none."""
    return name if any(map(str.isalpha, name)) else f"{compared} {name}"


def _many(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def outcomes(found: Sequence[Verdict], noun: str, on_assumption: int = 0) -> str:
    """The outcomes counted."""
    ranked = Counter(map(short, found)).most_common()
    told = ", ".join(f"{what} in {'all' if n == len(found) else n}" for what, n in ranked)
    does = "turns" if on_assumption == 1 else "turn"
    note = f" Assumptions {does} {on_assumption} of them." if on_assumption else ""
    return f"Of {counted(len(found), noun)}: {told}.{note}"


def dependence(found: Dependence) -> Iterator[str]:
    """Whether the winner depends on an axis; nothing where there is none."""
    winners, where = found.winners, f"{found.where}: " if found.where else ""
    every = [verdict for _, verdict in found.outcomes]
    best = "reads fastest" if any(each.reads for each in every) else "serves the most"
    axis, values = _axis(found.axis), [value for value, _ in found.outcomes]
    if len(winners) == 1 and all(each.outcome == "won" for each in every):
        least = min((each.gaps[0] for each in every), key=lambda gap: gap.total.mean)
        told = ", ".join(values) if len(values) <= _SHOWN else f"{len(values)} values"
        lead = more(least.total, least.other, named=True)
        yield f"{where}{winners[0]} {best} for every {axis} ({told}), by at least {lead}."
    elif winners and found.asked:
        told = "; ".join(f"{value}: {_with_lead(each)}" for value, each in found.outcomes)
        yield f"{where}Which {found.compared} {best} depends on the {axis}. {told}."
    elif len(winners) > 1:
        told = "; ".join(f"{value}: {short(each)}" for value, each in found.outcomes)
        yield f"{where}undecided: the winner changes with {axis} ({told})."


def _with_lead(found: Verdict) -> str:
    if found.outcome != "won":
        return short(found)
    gap = found.gaps[0]
    return f"{short(found)}, {more(gap.total, gap.other, named=True)}"


def _axis(axis: str) -> str:
    return axis if axis.split(".")[0] not in DESCRIBED or "." in axis else axis.replace("_", " ")


def turned(found: Turned) -> str:
    """Another outcome elsewhere."""
    told = "; ".join(f"{where}: {short(each)}" for where, each in found.outcomes.items())
    hangs = f"undecided: the winner changes with {found.assumption}"
    return f"{found.title}: {hangs if found.assumption else 'the outcome changes'} ({told})."


def reference(found: Reference, leader: str) -> str:
    """What a reference serves against the leader."""
    memory = ", both on memory without banks" if found.analytic else ""
    against = f"{gain(found.gains[leader], named=True)} against {leader}"
    return f"{found.title}: reference {found.name} serves {against}{memory}."


# Searches and changes


def what_if(found: Changes) -> Iterator[str]:
    """Who leads as described and what reverses that; then the largest effect on each."""
    where = f"{found.where}: " if found.where else ""
    for answer in found.answers:
        now = ratio(answer.levels[AS_DESCRIBED], named=True)
        yield f"{where}{answer.subject} is {now} as described. {_ranking(answer)}"
    moved: list[str] = []
    still: list[str] = []
    for rate in found.rates:
        sure = [name for name in found.alone if name in rate.effects and rate.effects[name].sign]
        largest = max(sure, key=lambda name: abs(rate.effects[name].mean), default=None)
        if largest is None:
            still.append(rate.subject)
        else:
            moved.append(f"{largest} {effect(rate.effects[largest], not moved)} on {rate.subject}")
    if moved:
        yield f"{where}Largest significant effects: {'; '.join(moved)}."
    if still:
        yield f"{where}No single change has a significant effect on {listed(still, 'or')}."


def _ranking(found: Sensitivity) -> str:
    """Which changes reverse or settle who leads."""
    now = found.levels[AS_DESCRIBED].sign
    signs = {n: level.sign for n, level in found.levels.items() if n != AS_DESCRIBED}
    if now == 0:
        which = _some([name for name, sign in signs.items() if sign])
        return f"That is not significant; {which or f'nor with any of {len(signs)} changes'}" + (
            " alone makes it so." if which else "."
        )
    reverse = _some([name for name, sign in signs.items() if sign == -now])
    level = _some([name for name, sign in signs.items() if sign == 0])
    text = f"Reversed by {reverse}." if reverse else f"None of {len(signs)} changes reverses it."
    return f"{text} Not significant with {level}." if level else text


def _some(names: Collection[str]) -> str:
    """The first of these names, and how many others; nothing of none."""
    shown = [*names][:_SHOWN]
    rest = len(names) - len(shown)
    return listed([*shown, *([f"{rest} others"] if rest else [])]) if shown else ""


def break_evens(found: Search) -> str:
    """The answer as described, and how many parameters cross."""
    where = f"{found.where}: " if found.where else ""
    outcomes = Counter(each.outcome for each in found.found)
    cross = [
        f"{each.name} at {crossing_text(each.crossing, each.parameter)}"
        if each.crossing else each.name
        for each in found.found if each.outcome == "crosses"
    ]  # fmt: skip
    told = f": {_some(cross)}" if cross else ""
    other = [f"{outcomes[each]} {each}" for each in ("undecided", "unfinished") if outcomes[each]]
    return (
        f"{where}{found.ratio} is {ratio(found.now, named=True)} as described. {len(cross)} of"
        f" {counted(len(found.found), 'assumed parameter')} cross{'es' * (len(cross) == 1)}"
        f" break-even within the plausible range{told}{'; ' * bool(other)}{', '.join(other)}."
    )


def crossing_text(crossing: Crossing, parameter: Parameter) -> str:
    """Where it crosses, with the values between which it is undecided."""
    if crossing.low is None and crossing.high is None:
        return f"{crossing.at} (undecided over the whole range)"
    low = f"below {parameter.at(0)}" if crossing.low is None else crossing.low
    high = f"above {parameter.at(1)}" if crossing.high is None else crossing.high
    return f"{crossing.at} ({low} to {high})"


def answer(found: AnswerMap) -> Iterator[str]:
    """Who wins in how many cells; where paging ties; what objections and readings change."""
    if not found.cells:
        yield "No cell has results of all policies yet."
        return
    won = {name: [c for c in found.cells if c.winner == name] for name in found.policies}
    ranked = sorted(((n, c) for n, c in won.items() if c), key=lambda item: -len(item[1]))
    told = [f"{name} serves the most in {len(cells)} ({_leads(cells)})" for name, cells in ranked]
    if none := len(found.cells) - sum(map(len, won.values())):
        unbound = sum(not cell.bound for cell in found.cells)
        why = f" (KV memory not the limit in {unbound})" if unbound else ""
        told.append(f"no policy leads significantly in {none}{why}")
    yield f"{counted(len(found.cells), 'combination')}: {listed(told)}."
    yield from _ties(found)
    for noun, names in (("objection", found.objections), ("disputed assumption", found.readings)):
        if names:
            yield _disputes(found, noun, list(names))


def _leads(cells: list[AnswerCell]) -> str:
    """The least lead over the next, and the largest."""
    leads = sorted((cell.lead for cell in cells), key=lambda lead: lead.mean)
    ends = dict.fromkeys(effect(lead, named=lead is leads[0]) for lead in (leads[0], leads[-1]))
    return f"{' to '.join(ends)} over the next"


def _ties(found: AnswerMap) -> Iterator[str]:
    """Where the policy that scatters KV loses its lead, where KV memory is the limit."""
    bound = [cell for cell in found.cells if cell.bound]
    tied = sorted(cell.tied.mean for cell in bound if cell.tied)
    sides = Counter(cell.side for cell in bound)
    if tied:
        ends = dict.fromkeys(f"{end:.2f}" for end in (tied[0], tied[-1]))
        yield (
            f"{found.scattered} ties with the best contiguous policy in {len(tied)} of {len(bound)}"
            f" limited by KV memory, at {' to '.join(ends)} of the contiguous KV bandwidth."
        )
    told = [
        f"at {which} ratio in {sides[side]}"
        for which, side in (("every", 1), ("no", -1)) if sides[side]
    ]  # fmt: skip
    if told:
        yield f"{found.scattered} serves more than the best contiguous policy {listed(told)}."


def _disputes(found: AnswerMap, noun: str, names: list[str]) -> str:
    counts = {name: sum(name in cell.upheld for cell in found.under(name)) for name in names}
    head = f"Changing each of {counted(len(names), noun)}"
    if len(names) == 1:
        head = f"Changing the one {noun}"
    if not any(counts.values()):
        return f"{head} never changes the winner to another policy."
    most = max(counts, key=counts.__getitem__)
    total = len(found.under(most))
    return f"{head} changes the winner in at most {counts[most]} of {total} combinations ({most})."


# Studies, and two runs


def no_trial(count: int, failed: int) -> str:
    """No trial may be chosen."""
    return f"None of {counted(count, 'trial')} meets the constraints; {failed} failed."


def best_so_far(trial: int, value: float, metric: str) -> str:
    """The best trial of a search that has no finale yet."""
    return (
        f"Best so far: trial {trial}, {value:,.4g} {metric} on the replications of the search,"
        " which is biased upwards by noise."
    )


def study(found: StudyGain) -> Iterator[str]:
    """What the chosen trial gained over the base and the best unsearched trial, and how much of
    the gap it closes."""
    base = found.gains.get(BASE)
    than = f": {_over(base, 'the base')}" if base else ""
    count = counted(found.replications, "replication")
    head = f"{found.chosen} has {found.mean:,.1f} {found.metric}"
    yield f"{head} on {count} not used in the search{than}."
    if found.first is not None:
        rest = "nothing" if found.added is None else _over(found.added, f"{found.first}")
        yield f"Added by the search, against the best trial without one ({found.first}): {rest}."
    for name, part in found.closed.items():
        if part is None:
            yield f"{name} does not exceed the base in every replication: no gap to close."
        else:
            yield f"The search closes {percent(part, named=True)} of the gap from base to {name}."


def _over(found: Interval, other: str) -> str:
    text = f"{gain(found, named=True)} against {other}"
    return text if found.sign else f"{text}, not significant"


def inputs(asked: list[str], count: int, programs: Sequence[str]) -> str:
    """asked: what the runs were asked that differs; count: inputs that differ in all."""
    if not count:
        text = "Inputs: the same"
    elif not asked:
        text = f"Inputs: the same settings; the descriptions differ in {counted(count, 'place')}"
    else:
        text = f"Inputs that differ: {_some(asked)}"
    return f"{text}. The programs differ in {', '.join(programs)}." if programs else f"{text}."


def results(count: int, same: bool, changes: list[tuple[str, MetricChange]]) -> str:
    """count: points in both; same: bit for bit; changes: of output tokens/s, by point."""
    points = counted(len(changes), "point")
    if not count:
        return "Results: the two have no point in common."
    if same:
        return f"Results: the same, bit for bit, in all {count} points."
    if not changes:
        return "Results differ, but not in output tokens/s."
    ranked = sorted(changes, key=lambda item: -abs(item[1].change.mean))
    sure = [item for item in ranked if item[1].certain in ("more", "less")]
    if sure:
        title, change = sure[0]
        most = f"most in {title}, {gain(change.change, named=True)}"
        return f"Output tokens/s change significantly in {len(sure)} of {points}; {most}."
    title, change = ranked[0]
    if change.certain == "the same":
        return f"Output tokens/s are the same in every replication of {points}."
    if change.certain == "unknown":
        most = f"most in {title}, {gain(change.change)}"
        return f"Output tokens/s of {points} change, {most}; one replication gives no interval."
    widest = max((item.change for _, item in changes), key=lambda each: each.half)
    return f"Output tokens/s change significantly in none of {points}: {either_way(widest)}."


# Other kinds of runs


def paper(found: list[DatasetResult]) -> Iterator[str]:
    """How many of the ODMA paper's figures follow from its baselines, and the gain."""
    if not found:
        return
    places = Counter(placement.place for each in found for placement in each.placements)
    head = f"{places['inside']} of the paper's {places.total()} figures lie"
    edge = f"; {places['edge']} within an interval of it" if places["edge"] else ""
    yield f"{head} inside the band of means over the assumptions{edge}."
    gains = [
        f"{percent(centre, True, 1, named=not i)} on {each.name} (paper: {hundred(each.gain, 0)} %)"
        for i, each in enumerate(found)
        if (centre := each.placements[-1].centre) is not None
    ]
    if gains:
        yield f"At the centre the throughput of odma over static is {listed(gains)}."
    cells = [cell.meets(each.paper) for each in found for cell in each.cells]
    if cells:
        met = sum(len(names) == len(found[0].paper) for names in cells)
        yield f"All figures together are met at {met} of {len(cells)} length shapes and limits."


def paged(found: list[Effects]) -> Iterator[str]:
    """Which of capacity and layout makes paged's gaps, in ranges over all of them."""
    known = [(e.capacity, e.layout) for e in found if e.capacity is not None and e.layout]
    if not known:
        yield "The effect of layout is not known without the analytic control."
        return
    capacities, layouts = [c for c, _ in known], [part for _, part in known]
    yield (
        f"paged differs from contiguous reservation by {_which(capacities, layouts)}. Over"
        f" {counted(len(known), 'comparison')} capacity is {_range(capacities)}, layout"
        f" {_range(layouts)}."
    )
    if moved := [e.bandwidth for e in found if e.bandwidth is not None]:
        yield f"Other bandwidth changes the gaps of paged by {_range(moved)}."


def _which(capacities: list[Interval], layouts: list[Interval]) -> str:
    """The larger of the two at its largest, among those that are significant."""
    capacity, layout = (
        max((abs(each.mean) for each in effects if each.sign), default=0.0)
        for effects in (capacities, layouts)
    )
    if capacity == layout == 0:
        return "neither capacity nor layout significantly"
    names = ("capacity", "layout") if capacity > layout else ("layout", "capacity")
    dwarfed = min(capacity, layout) * _DWARFS < max(capacity, layout)
    return f"{names[0]}, not {names[1]}" if dwarfed else f"{names[0]} more than {names[1]}"


def _range(effects: list[Interval]) -> str:
    """Means from the least to the most, and how many are not significant."""
    means = [grown(each.mean) for each in effects]
    text = f"{hundred(min(means), 1)} to {hundred(max(means), 1)} %"
    idle = sum(each.sign == 0 for each in effects)
    return f"{text} ({idle} not significant)" if idle else text


def atlas(found: list[Enough]) -> Iterator[str]:
    """From which extents on layout costs little, on all memories."""
    for words, sizes in (
        ("As described", {each.row: each.described for each in found}),
        ("In the worst case", {each.row: each.worst for each in found}),
    ):
        enough = {row: size for row, size in sizes.items() if size is not None}
        if not enough:
            yield f"{words} no simulated extent keeps layout's cost at {COSTLY:.0%}."
            continue
        row = max(enough, key=enough.__getitem__)
        yield (
            f"{words} extents of {size_text(enough[row])} (for {row}) keep layout's cost at"
            f" {share(COSTLY)} of throughput or less on {len(enough)} of {len(sizes)} memories."
        )


def explanation(found: Explanation) -> str:
    """The gap and its largest significant causes."""
    sure = sorted((p for p in found.parts if p.forward.sign), key=lambda p: -abs(p.forward.mean))
    told = ", ".join(f"{part.words} {effect(part.forward)}" for part in sure[:_SHOWN])
    causes = f"Largest causes: {told}" if told else "No single cause is significant"
    total = more(found.total.mapped(grown), found.loser, named=True)
    return f"{found.group}: {found.winner} serves {total}. {causes}."


def random_access(found: RandomAccess) -> list[str]:
    """The answer with what turns it, where alpha reaches the threshold, what else limits."""
    alpha = between(found.alpha, "{:.2f}".format, named=True)
    turning = [
        f"{between(each, '{:.2f}'.format)} with {difference_text(condition, found.condition)}"
        for condition, each in found.flipping
    ]
    turning += [f"{between(found.plausible[n], '{:.2f}'.format)} with {n}" for n in found.turning]
    lines = [
        f"{found.place}: random extents of {size_text(found.extent)} reach {alpha} of sequential"
        f" bandwidth: {found.answer} (threshold {found.threshold:g})."
    ]
    if turning:
        lines[0] += f" It is {listed(turning)}."
    if found.reached_at is None:
        lines.append(f"No extent up to {size_text(found.longest)} reaches {found.threshold:g}.")
    else:
        reached = size_text(found.reached_at)
        lines.append(f"The smallest extent that reaches {found.threshold:g} is {reached}.")
    if found.descriptors is not None:
        size, cost = found.descriptors
        limit = f"DMA engines limit extents up to {size_text(size)}"
        lines.append(f"{limit}: {cost:g} ns per descriptor.")
    return lines
